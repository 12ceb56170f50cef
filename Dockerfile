# docker build -t flashbook . && docker run --rm -it -v "$PWD:/flashbook" flashbook ./flashbook run
FROM debian:bookworm-slim
COPY .devcontainer/install .devcontainer/packages /flashbook/.devcontainer/
COPY docs/packages /flashbook/docs/
RUN /flashbook/.devcontainer/install && rm -rf /var/lib/apt/lists/*
WORKDIR /flashbook
