# Train and translate on a CPU:
#
#     docker build -t dragoman .
#     docker run --rm -it -v "$PWD/runs:/work/runs" dragoman train
#     docker run --rm -it -v "$PWD/runs:/work/runs" dragoman translate "Where is the station?"
#     docker run --rm -it -v "$PWD/runs:/work/runs" -p 127.0.0.1:8000:8000 dragoman serve --host 0.0.0.0
#
# For an NVIDIA GPU, leave out --index-url, so that pip installs the CUDA build of torch, and run with `--gpus all`.
FROM python:3.12-slim
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.11,<2.14"
COPY . /src
RUN pip install --no-cache-dir "/src[serve]" && rm -r /src \
    && useradd --create-home dragoman && mkdir -p /work/runs && chown -R dragoman /work
USER dragoman
WORKDIR /work
ENTRYPOINT ["dragoman"]
