"""A small C++ reader for the static honesty pass: comments and literals removed, names looked at in their context."""

from __future__ import annotations

import re
from functools import lru_cache

_COMPUTE_WORDS = """
    abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv addr all alpha_dropout amax amin aminmax any argmax
    argmin argsort asin atan atan2 avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bernoulli bilinear
    binary_cross_entropy binary_cross_entropy_with_logits bmm cdist ceil celu chain_matmul clamp clamp_max clamp_min
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution cos cosh cosine_embedding_loss
    cosine_similarity cross cross_entropy ctc_loss cummax cummin cumprod cumsum diag_embed digamma dist div divide dot
    dropout dropout2d einsum elu embedding embedding_bag erf erfc exp exp2 expm1 feature_dropout fft floor fmod
    fold frac gaussian_nll_loss gelu glu grid_sample group_norm gru gru_cell gumbel_softmax hardshrink hardsigmoid
    hardswish hardtanh hinge_embedding_loss hinge_loss histc huber_loss index_add inner instance_norm interpolate
    inverse kl_div kron l1_loss layer_norm leaky_relu lerp linear local_response_norm log log10 log1p log2 log_softmax
    logcumsumexp logsigmoid logsumexp lp_pool1d lp_pool2d lstm lstm_cell margin_ranking_loss masked_fill matmul
    matrix_exp max max_pool1d max_pool2d max_pool3d max_unpool2d maximum mean median min minimum mish mm
    mse_loss mul multi_head_attention_forward multi_margin_loss multiply mv nansum native_group_norm native_layer_norm
    neg nll_loss norm normalize outer pairwise_distance pixel_shuffle poisson_nll_loss pow prelu prod reciprocal relu
    relu6 remainder renorm rms_norm rnn_tanh round rrelu rsqrt scaled_dot_product_attention scatter_add selu sigmoid
    sign silu sin sinc sinh smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign sort sqrt
    square std std_mean sub subtract sum svd tan tanh tanhshrink tensordot threshold topk triplet_margin_loss
    triplet_margin_with_distance_loss true_divide unfold upsample var var_mean
"""
#: Operators whose work is compute: calling one of them hands the work to the library.
COMPUTE_OPS = frozenset(_COMPUTE_WORDS.split())

#: Methods that on a tensor are compute; names that plain numbers, lists or sets also have are left out.
COMPUTE_METHODS = COMPUTE_OPS - {"add", "all", "any", "max", "min", "norm", "round", "sort"} | {
    "addmm_", "add_", "mul_", "div_", "sub_", "relu_", "sigmoid_", "tanh_", "exp_", "clamp_",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
      | (?P<text>"(?:\\.|[^"\\\n])*")
      | (?P<char>'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?\d(?:[eEpP][+-]|['\w.])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>::|->|\#|\S)""",
    re.VERBOSE | re.DOTALL,
)
_LIBRARIES = re.compile(r"(cublas|cudnn|cusparse|cufft|cusolver|curand(?!State|_))\w*|cblas_\w+|mkl_\w+|dnnl\w*")
_LIBRARY_TYPES = re.compile(r"(cublas|cudnn|cusparse|cufft|cusolver)\w*_t")


@lru_cache(maxsize=16)
def tokens(source: str) -> tuple[tuple[str, str, int], ...]:
    """(kind, text, line) of every token but comments; strings are kept as one token of kind `text` or `raw`."""
    found = []
    line, at = 1, 0
    for match in _TOKEN.finditer(source):
        line += source.count("\n", at, match.start())
        at = match.start()
        kind = match.lastgroup or "sign"
        if kind == "mark":
            kind = "raw"
        if kind != "comment":
            found.append((kind, match.group(), line))
    return tuple(found)


def library_calls(source: str) -> list[tuple[int, str]]:
    """(line, name) of every call that hands compute to ATen, cuBLAS, cuDNN and the like."""
    stream = tokens(source)
    texts = [text for _, text, _ in stream]
    found = []
    for i, (kind, text, line) in enumerate(stream):
        if kind != "name" or i + 1 >= len(stream):
            continue
        called = texts[i + 1] == "("
        if called and _LIBRARIES.fullmatch(text) and not _LIBRARY_TYPES.fullmatch(text):
            found.append((line, text))
        elif called and text.removesuffix("_out") in COMPUTE_OPS and i >= 2 and texts[i - 1] == "::":
            scope = [part for part in texts[max(0, i - 6) : i - 1] if part != "::"]
            if scope and (scope[-1] in ("torch", "at", "aten", "native", "functional", "linalg") or "torch" in scope):
                found.append((line, "::".join([scope[-1], text])))
        elif called and text in COMPUTE_METHODS and i >= 1 and texts[i - 1] == "." and "torch" in texts:
            found.append((line, f".{text}"))
    return found


def concurrency(source: str) -> list[tuple[int, str]]:
    """(line, name) of streams, threads and processes that the source makes itself."""
    stream = tokens(source)
    texts = [text for _, text, _ in stream]
    found = []
    for i, (kind, text, line) in enumerate(stream):
        if kind != "name":
            continue
        if re.fullmatch(r"cudaStreamCreate\w*|cudaGraph\w*|getStreamFromPool|pthread_create|fork|popen", text):
            found.append((line, text))
        elif text in ("thread", "jthread", "async") and i >= 2 and texts[i - 1] == "::" and texts[i - 2] == "std":
            found.append((line, f"std::{text}"))
        elif text == "system" and i + 1 < len(texts) and texts[i + 1] == "(":
            found.append((line, text))
    return found


def has_own_compute(source: str) -> bool:
    """Whether the source holds a CUDA kernel or at least a loop: something of its own that can compute."""
    names = {text for kind, text, _ in tokens(source) if kind == "name"}
    return "__global__" in names or bool(names & {"for", "while", "parallel_for"})


def is_cuda(source: str) -> bool:
    """Whether the source defines a CUDA kernel."""
    return any(kind == "name" and text == "__global__" for kind, text, _ in tokens(source))


def looks_like_cpp(text: str) -> bool:
    """Whether a Python string is C++ or CUDA source rather than a message or a docstring."""
    return "#include" in text or "__global__" in text or "PYBIND11_MODULE" in text or "torch::Tensor" in text
