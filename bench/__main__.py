"""`python -m bench`: both measurements in short form, under a minute."""

import argparse
import json
from dataclasses import asdict

from rich.console import Console

from bench import pass_cost, writer
from bench.machine import WIDTH, facts, line
from worker import connect, embedded

#: Rounds of the writer and passes in the short form.
ROUNDS = 5
PASSES = 50


def main() -> None:
    """Measure on an embedded server and print tables, or with --json one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    with embedded.server() as url:
        client = connect.by_url(url)
        machine = facts(client)
        results = writer.measure(client, rounds=ROUNDS)
        result = pass_cost.measure(url, PASSES)
    if options.json:
        writers = [asdict(one) for one in results]
        print(json.dumps({"machine": machine, "writer": writers, "pass": asdict(result)}))
        return
    console = Console(highlight=False, width=WIDTH)
    console.print(line(machine))
    for table in (writer.table(results), pass_cost.table(result), pass_cost.trips_table(result)):
        console.print()
        console.print(table)


if __name__ == "__main__":
    main()
