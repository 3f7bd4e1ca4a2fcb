# cmake --install: PREFIX/bin/ddp_train, its module for GPUs, and launch scripts, configurations and documentation below
# PREFIX/share. Everything is found relative to the program or script, so the prefix can be moved.
set(ddp_share share/ddp_train)

# $ORIGIN for libraries that a user puts into the same prefix; the link path for those of a conda or Spack environment.
set_target_properties(ddp_train_program PROPERTIES
  INSTALL_RPATH "$ORIGIN/../lib" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ddp_train_program RUNTIME DESTINATION bin)
if(TARGET ddp_cuda)
  # src/comm/gpu_module.cpp looks for it here.
  set_target_properties(ddp_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/.." INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ddp_cuda LIBRARY DESTINATION lib/ddp_train)
endif()

install(PROGRAMS launch/run launch/get-data launch/slurm-train.sbatch launch/slurm-train-srun.sbatch
  DESTINATION ${ddp_share}/launch)
install(FILES launch/common.sh launch/job.sh launch/slurm-job.sh DESTINATION ${ddp_share}/launch)
install(DIRECTORY configs DESTINATION ${ddp_share})
install(DIRECTORY docs DESTINATION share/doc/ddp_train OPTIONAL)
install(FILES README.md LICENSE DESTINATION share/doc/ddp_train)
