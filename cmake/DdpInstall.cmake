# cmake --install: launch scripts, configurations and documentation below PREFIX/share; src/CMakeLists.txt installs the
# program and its GPU module. Everything is found relative to the program or script, so the prefix is relocatable.
set(ddp_share share/ddp_train)

install(PROGRAMS launch/run launch/supervise launch/get-data launch/slurm-train.sbatch launch/slurm-train-srun.sbatch
  DESTINATION ${ddp_share}/launch)
install(FILES launch/base.sh launch/common.sh launch/job.sh launch/run_folder.sh launch/slurm-job.sh DESTINATION ${ddp_share}/launch)
install(DIRECTORY configs DESTINATION ${ddp_share})
install(DIRECTORY docs DESTINATION share/doc/ddp_train OPTIONAL)
install(FILES README.md LICENSE DESTINATION share/doc/ddp_train)
