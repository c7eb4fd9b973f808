#!/usr/bin/env bash
# NP=4 ./mpi_launch.sh ./run.sh config_gen.yaml [flags]
set -euo pipefail

# Variables of another job would be taken for those of this one.
while IFS= read -r name; do
    unset "$name"
done < <(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' | grep -i -E 'slurm|MPI')

exec mpirun --allow-run-as-root --np "${NP:-1}" "$@"
