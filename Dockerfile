FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements/build.txt requirements/runtime.txt ./
RUN python -m venv /opt/fastpath \
    && /opt/fastpath/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r runtime.txt \
    && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r build.txt
COPY pyproject.toml README.md LICENSE ./
COPY adapter adapter
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/fastpath/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index dist/*.whl \
    && /opt/fastpath/bin/pip uninstall --yes pip setuptools

FROM python:3.11-slim
COPY --from=build /opt/fastpath /opt/fastpath
# Nothing is written but the self-signed pair (--cert-dir), so the root file system may be read-only.
ENV PATH=/opt/fastpath/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 6443
# Flags follow as arguments, as with prometheus-adapter's image; its chart passes /adapter first, which is ignored.
ENTRYPOINT ["fastpath", "serve"]
