"""Both measurements in short form, under a minute."""

from dataclasses import asdict

from bench import pass_cost, writer
from bench.machine import facts
from bench.options import parser, show
from worker import connect, embedded

#: Passes in the short form.
PASSES = 50


def main() -> None:
    """Measure on one embedded server and print."""
    options = parser("bench", __doc__).parse_args()
    with embedded.server() as url:
        client = connect.by_url(url)
        machine = facts(client)
        results = writer.measure(client)
        result = pass_cost.measure(url, PASSES)
    figures = {"writer": [asdict(one) for one in results], "pass": asdict(result)}
    tables = [writer.table(results), pass_cost.table(result), pass_cost.trips_table(result)]
    show(machine, figures, tables, as_json=options.json)


if __name__ == "__main__":
    main()
