#!/bin/bash
# Run this on every machine, the first with NODE_RANK=0. FIRST_NODE: its name or address.
# GPUS: of all machines together. The output_dir of the config must be a folder that all machines share.
set -euo pipefail
: "${NODE_RANK:?0 on the first machine, 1 on the second}" "${FIRST_NODE:?name or address of the first machine}"
export PET_NNODES=${NODES:-2} PET_NODE_RANK=$NODE_RANK PET_MASTER_ADDR=$FIRST_NODE PET_MASTER_PORT=${PORT:-29500}
exec vramwise train "${CONFIG:-config.yml}" --gpus "${GPUS:-16}" ${VRAMWISE_OPTIONS:-}
