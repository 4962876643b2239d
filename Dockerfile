# Train and translate on a CPU:
#
#     docker build -t dragoman .
#     docker run --rm -it -v "$PWD/runs:/home/dragoman/runs" dragoman train
#     docker run --rm -it -v "$PWD/runs:/home/dragoman/runs" -v dragoman:/home/dragoman/.cache dragoman translate "Good day!"
#     docker run --rm -it -v "$PWD/runs:/home/dragoman/runs" -p 127.0.0.1:8000:8000 dragoman serve --host 0.0.0.0
#
# The volume for the cache keeps the files for CTranslate2. Without it, each container makes them again, which takes some
# seconds.
#
# pip's own choice of torch on Linux is the CUDA build: run with `--gpus all` to use an NVIDIA GPU. For a smaller image without
# CUDA, build with `--build-arg TORCH_INDEX=URL`, the index of CPU builds that PyTorch's installation page names.
FROM python:3.12-slim
ARG TORCH_INDEX=""
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.11,<2.14"
COPY . /src
RUN pip install --no-cache-dir "/src[serve]" && rm -r /src \
    && useradd --create-home dragoman && mkdir -p /home/dragoman/runs /home/dragoman/.cache && chown -R dragoman /home/dragoman
USER dragoman
WORKDIR /home/dragoman
ENTRYPOINT ["dragoman"]
