# Build:  docker build -t tensor-provenance .
# On an x86 machine without a GPU, choose torch's small build:
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu -t tensor-provenance .
# Run:    docker run --init -p 8000:8000 -v traces:/data tensor-provenance
#
# The cited sources and GPT-2's vocabulary come inside pinned packages, so that the image runs
# without a network. Pin the base image's digest yourself where you need it. Only /data, /cache and /tmp
# are written: docker-compose.yml runs it with a read-only root file system, behind a proxy.

FROM python:3.11-slim AS build
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX_URL=
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/venv
RUN /opt/venv/bin/pip install --no-cache-dir ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} "$TORCH"
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY provenance provenance
COPY templates templates
COPY static static
RUN /opt/venv/bin/pip install --no-cache-dir --constraint requirements.lock .
# Fails the build where an excerpt could not be shown offline.
RUN TENSOR_PROVENANCE_CACHE_DIRECTORY=/opt/cache /opt/venv/bin/tensor-provenance sources status

FROM python:3.11-slim
COPY --from=build /opt/venv /opt/venv
RUN useradd --uid 10001 --create-home explorer && mkdir /data /cache && chown explorer /data /cache
ENV PATH=/opt/venv/bin:$PATH \
    HF_HUB_OFFLINE=1 \
    TENSOR_PROVENANCE_HOST=0.0.0.0 \
    TENSOR_PROVENANCE_NETWORK=false \
    TENSOR_PROVENANCE_LOG_LEVEL=info \
    TENSOR_PROVENANCE_DATA_DIRECTORY=/data \
    TENSOR_PROVENANCE_CACHE_DIRECTORY=/cache \
    NUMBA_CACHE_DIR=/cache/numba
USER explorer
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["tensor-provenance", "serve"]
