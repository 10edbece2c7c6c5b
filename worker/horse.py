"""The child of a spawning worker: `python -m worker.horse WORKER_KEY JOB_ID QUEUE LOG_LEVEL`."""

import sys

from worker.cli.session import exit_code, log_to_stderr
from worker.rqworker import do_one


def main(worker_key: str, job_id: str, queue_name: str, level: str) -> None:
    """Do one job; a fault is one sentence on stderr."""
    log_to_stderr(int(level))
    sys.exit(exit_code(lambda: do_one(worker_key, job_id, queue_name)))


if __name__ == "__main__":
    main(*sys.argv[1:5])
