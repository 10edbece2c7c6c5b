# The one image of all roles: docker build -t remq:0.1 . && docker run --rm remq:0.1 demo

# Python 3.13 on Debian 13, without compilers: every locked package has a wheel for it.
FROM python:3.13-slim-trixie AS build
WORKDIR /src
RUN python -m venv /opt/remq
COPY requirements.lock ./
RUN /opt/remq/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY . .
# hatchling is in the lock, so that the build fetches nothing.
RUN /opt/remq/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim-trixie
COPY --from=build /opt/remq /opt/remq
ENV PATH=/opt/remq/bin:$PATH PYTHONUNBUFFERED=1
# Roles read and write nothing on disk; only `demo` and `up` keep data, in this user's folder.
RUN useradd --create-home --uid 10001 remq
USER remq
WORKDIR /home/remq
ENTRYPOINT ["remq"]
CMD ["--help"]
