"""`remq`: the roles and the operator's commands."""

import sys

from worker.cli.root import cli
from worker.cli.session import exit_code


def main() -> None:
    """Run the command line; a fault a person can meet is one sentence on stderr."""
    sys.exit(exit_code(lambda: cli(prog_name="remq", standalone_mode=False)))


if __name__ == "__main__":
    main()
