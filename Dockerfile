# An image that serves the models in /models:
#   docker build -t transformer-mt .
#   docker run -p 127.0.0.1:5000:5000 -v ./models:/models:ro transformer-mt
# With `--target train`: one that trains. `--build-arg TORCH=cpu` makes small images, without CUDA.
FROM python:3.11-slim AS base
ARG TORCH
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY configs configs
COPY scripts/install.py scripts/
COPY transformer_mt transformer_mt

FROM base AS train
RUN python scripts/install.py --compile ${TORCH:+--$TORCH} plot ctranslate2 huggingface clean metrics alignment documents
WORKDIR /work
ENTRYPOINT ["transformer-mt"]
CMD ["--help"]

FROM base AS serve
RUN python scripts/install.py --compile ${TORCH:+--$TORCH} serve ctranslate2 huggingface documents
RUN mkdir -p /models /cache && chmod 1777 /cache
ENV TRANSFORMER_MT_WATCH=/models TRANSFORMER_MT_HOST=0.0.0.0 TRANSFORMER_MT_CACHE=/cache HOME=/cache
WORKDIR /models
USER 1000
EXPOSE 5000
HEALTHCHECK --start-period=10m CMD python -c "import os, urllib.request as u; \
  u.urlopen(f\"http://127.0.0.1:{os.environ.get('TRANSFORMER_MT_PORT', 5000)}/health\")"
ENTRYPOINT ["transformer-mt"]
CMD ["serve"]
