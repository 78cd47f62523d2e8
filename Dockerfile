# A checkout with everything that its tests need; CONTRIBUTING.md says how to use it.
FROM python:3.11-slim

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ringyard \
    && install --directory --owner=ringyard /home/ringyard/checkout

USER 1000
WORKDIR /home/ringyard/checkout

# builds of torch for CPUs; without this index, pip takes one that brings gigabytes for GPUs
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
# torch has a layer of its own, which stays when only sources change
COPY --chown=1000 constraints.txt ./
RUN python -m venv .venv \
    && .venv/bin/python -m pip install --constraint constraints.txt torch

COPY --chown=1000 . .
RUN make setup

ENV PATH=/home/ringyard/checkout/.venv/bin:$PATH
CMD ["make", "test"]
