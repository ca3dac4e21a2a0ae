# One Python for both stages, by patch version and digest. A new one is taken by changing this line.
ARG PYTHON=python:3.11.15-slim-trixie@sha256:db3ff2e1800a8581e2c48a27c3995339d47bdf046da21c7627accd3d51053a93

FROM ${PYTHON} AS build
# The lock file of what is installed: runtime, or forecast, which has numpy as well.
ARG REQUIREMENTS=runtime
WORKDIR /build
COPY requirements/build.txt requirements/runtime.txt requirements/forecast.txt ./
# Wheels only: nothing is compiled, so nothing that compiles is needed.
RUN python -m venv /opt/fastpath \
    && /opt/fastpath/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: -r ${REQUIREMENTS}.txt \
    && pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: -r build.txt
# What no program runs: the packages' own tests, type stubs, and sources and static libraries for a compiler.
RUN find /opt/fastpath/lib -depth \( -path '*/site-packages/*/tests/*' -o -type d -name tests \
    -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.a' \) -delete
COPY pyproject.toml README.md LICENSE ./
COPY adapter adapter
COPY fastpath_forecast fastpath_forecast
COPY fastpath_tools fastpath_tools
COPY fastpath_sandbox fastpath_sandbox
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir dist . \
    && /opt/fastpath/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index dist/*.whl \
    && /opt/fastpath/bin/pip uninstall --yes pip setuptools

FROM ${PYTHON}
ARG PYTHON
# scripts/image adds version, revision and source.
LABEL org.opencontainers.image.title="Fastpath" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="docker.io/library/${PYTHON}"
# What the base image could install with.
RUN pip uninstall --yes --root-user-action=ignore setuptools wheel pip && rm -rf /usr/local/lib/python3.*/ensurepip
COPY --from=build /opt/fastpath /opt/fastpath
# Nothing is written but the self-signed pair (--cert-dir), so the root file system may be read-only.
ENV PATH=/opt/fastpath/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 6443
# Flags follow as arguments, as with prometheus-adapter's image; its chart passes /adapter first, which is ignored.
ENTRYPOINT ["fastpath", "serve"]
