# Source this file from bash: finds the bundle's programs and libraries wherever the bundle lies, and CUDA's libraries in
# the machine's toolkit or in Python's nvidia packages. Sets DDP_BUNDLE, PATH and the variables of Open MPI; DDP_LIBRARIES is
# the LD_LIBRARY_PATH for the bundle's programs only, since other programs may need other versions.
# shellcheck shell=bash
DDP_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export DDP_BUNDLE
ddp_python=${PYTHON:-python3}
ddp_cuda_folders=$("$ddp_python" - <<'PYTHON' 2>/dev/null
import glob, os
folders = []
try:
    import nvidia
    for path in nvidia.__path__:
        folders += sorted(glob.glob(os.path.join(path, "*", "lib")))
except ImportError:
    pass
folders += [f for f in ("/usr/local/cuda/lib64", "/usr/local/cuda/lib") if os.path.isdir(f)]
print(":".join(folders))
PYTHON
) || ddp_cuda_folders=""
DDP_LIBRARIES=$DDP_BUNDLE/lib${ddp_cuda_folders:+:$ddp_cuda_folders}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# The C++ library of the machine if it is new enough, otherwise that of the bundle.
LD_LIBRARY_PATH=$DDP_LIBRARIES "$DDP_BUNDLE/bin/ddp_train" --version >/dev/null 2>&1 ||
  DDP_LIBRARIES=$DDP_BUNDLE/lib/base:$DDP_LIBRARIES
export DDP_LIBRARIES PATH=$DDP_BUNDLE/bin:$PATH
export OPAL_PREFIX=$DDP_BUNDLE OPAL_EXEC_PREFIX=$DDP_BUNDLE OPAL_BINDIR=$DDP_BUNDLE/bin OPAL_LIBDIR=$DDP_BUNDLE/lib \
  OPAL_PKGLIBDIR=$DDP_BUNDLE/lib/openmpi OPAL_DATADIR=$DDP_BUNDLE/share OPAL_PKGDATADIR=$DDP_BUNDLE/share/openmpi \
  OPAL_SYSCONFDIR=$DDP_BUNDLE/etc
export PMIX_INSTALL_PREFIX=$DDP_BUNDLE PMIX_PREFIX=$DDP_BUNDLE PMIX_LIBDIR=$DDP_BUNDLE/lib PMIX_PKGLIBDIR=$DDP_BUNDLE/lib/pmix \
  PMIX_MCA_mca_base_component_path=$DDP_BUNDLE/lib/pmix PMIX_MCA_pmix_mca_base_component_path=$DDP_BUNDLE/lib/pmix
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated OMPI_MCA_plm_rsh_agent=/bin/false \
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl=self,vader,tcp \
  PMIX_MCA_pcompress_base_silence_warning=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
unset ddp_python ddp_cuda_folders
