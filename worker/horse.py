"""The child process of a spawning worker: `python -m worker.horse WORKER_KEY JOB_ID QUEUE`."""

import sys

from worker.rqworker import do_one

if __name__ == "__main__":
    do_one(*sys.argv[1:4])
