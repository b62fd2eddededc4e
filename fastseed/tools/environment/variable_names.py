"""Which environment variables a capture keeps, and which names give a secret away.

Keeping only what is known to matter is the one rule that holds: a filter of names has to foresee
every secret's name, and misses `DATABASE_URL`, `SLURM_JWT`, `GH_PAT`, `MYSQL_PWD`.
"""

from __future__ import annotations

import functools
import re

# What influences numerics, libraries and schedulers. A prefix lets through all but secret names.
PREFIXES = (
    *("CUDA_", "CUBLAS_", "CUBLASLT_", "CUDNN_", "CUFFT_", "NVIDIA_", "NCCL_", "NVTE_", "NVSHMEM_"),
    *("HIP_", "ROCR_", "ROCM_", "ROCBLAS_", "MIOPEN_", "HSA_", "RCCL_", "ONEAPI_", "ZE_", "SYCL_"),
    *("TORCH_", "TORCHINDUCTOR_", "TORCHELASTIC_", "PYTORCH_", "TRITON_", "AOT_", "ATEN_", "GLOO_"),
    *("FASTSEED_", "HOROVOD_", "XLA_", "JAX_", "TF_DETERMINISTIC", "TF_CUDNN_", "TF_ENABLE_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "BLIS_", "VECLIB_"),
    *("GOTO_", "NUMEXPR_", "NUMBA_", "NPY_", "MALLOC_", "GLIBC_", "TBB_", "SCIPY_", "ARM_COMPUTE_"),
    *("LD_", "PYTHON", "LC_", "CONDA_", "MODULES_", "LMOD_"),
    *("SLURM_", "SBATCH_", "SRUN_", "PBS_", "LSB_", "SGE_", "COBALT_", "FLUX_", "PALS_", "JSM_"),
    *("OMPI_", "PMI_", "PMIX_", "PRTE_", "MPI_", "MPICH_", "I_MPI_", "MV2_", "UCX_", "UCC_", "FI_"),
)
_EXACT = """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME
    ROLE_WORLD_SIZE LOADEDMODULES _LMFILES_ MODULEPATH MODULESHOME NODE_RANK NNODES
    NPROC_PER_NODE MASTER_ADDR
    MASTER_PORT
    TF_XLA_FLAGS TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS TF_FORCE_GPU_ALLOW_GROWTH
    TF_CPP_MIN_LOG_LEVEL TF_GPU_THREAD_MODE TF_GPU_ALLOCATOR TF_FORCE_UNIFIED_MEMORY
    TOKENIZERS_PARALLELISM HF_HOME HF_HUB_OFFLINE HF_DATASETS_OFFLINE TRANSFORMERS_OFFLINE
    PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CC CXX CFLAGS CXXFLAGS LDFLAGS
    NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS MAX_JOBS FORCE_CUDA USE_NINJA
    VIRTUAL_ENV LANG LANGUAGE TZ SOURCE_DATE_EPOCH SHELL
    SINGULARITY_NAME SINGULARITY_CONTAINER APPTAINER_NAME APPTAINER_CONTAINER container
    JOB_ID JOB_NAME QUEUE NSLOTS NHOSTS KUBERNETES_SERVICE_HOST OMPI_COMM_WORLD_RANK
"""
EXACT = frozenset(_EXACT.split())

# Words of a name, split at separators and at changes of case.
_WORD_LIST = """
    KEY KEYS PASS PWD PW PSW PSWD PAT PIN OTP TOTP MFA PSK AUTH OAUTH AUTHORIZATION JWT DSN SIG
    SIGNATURE CERT CERTS CERTIFICATE PEM PFX JKS KEYSTORE KEYTAB SALT SESSION SESSIONID SID CONN
    CONNECTION CONNSTR CRED CREDS SASL HMAC CIPHER ENCRYPTION VAULT UNSEAL NETRC NONCE PHRASE
    MNEMONIC CSRF XSRF LICENSE LICENCE KRB KRB5CCNAME KUBECONFIG DOCKERCFG PGPASSFILE BEARER
    IDENTITY
"""
_WORDS = frozenset(_WORD_LIST.split())
# Parts of the name with its separators removed, so that `api-key`, `apiKey` and `APIKEY` are one.
_PARTS = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "PASSWRD", "SECRET", "TOKEN", "CREDENTIAL"),
    *("APIKEY", "ACCESSKEY", "PRIVATEKEY", "SSHKEY", "AUTHKEY", "SIGNINGKEY", "ACCOUNTKEY"),
    *("COOKIE", "WEBHOOK", "CONNECTIONSTRING", "CONNSTR", "JWT", "KENNWORT", "HTPASSWD"),
)
_ENDS = ("PASS", "PWD", "PW", "KEY", "KEYS", "CRED", "CREDS")  # DBPASS, BINDPW, APPKEY
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")


@functools.lru_cache(maxsize=8192)
def is_secret(name: str) -> bool:
    """Whether a variable, option or field of this name is likely to hold a secret."""
    words = [word.upper() for word in _SPLIT.split(name) if word]
    joined = "".join(words)
    return (
        not _WORDS.isdisjoint(words)
        or any(word.endswith(_ENDS) for word in words)
        or any(part in joined.replace("TOKENIZ", "") for part in _PARTS)
    )


def is_allowed(name: str) -> bool:
    """Whether a capture keeps the environment variable ``name`` without being asked to."""
    if name in EXACT:
        return True
    return name.startswith(PREFIXES) and not is_secret(name)
