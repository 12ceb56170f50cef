"""Peers from packages: each is a contestant of peers.py and backward.py if its package is installed, and otherwise is reported with the command
that installs it. Tensors are [batch, heads, seqlen, head_dim]; most packages have the heads third."""

import functools
import importlib
import importlib.util
from typing import Any, NamedTuple

from bench import flash_attention_3
from bench.race import Contestant

torch: Any = None  # imported after the options are checked


class Package(NamedTuple):
    """A peer's name, its module, and the command that installs it."""

    label: str
    module: str
    install: str


BUILD = "git clone https://github.com/Dao-AILab/flash-attention && cd flash-attention"
FRONTEND = "pip install nvidia-cudnn-frontend"
PACKAGES = {
    "fa3": Package("FlashAttention-3", "flash_attn_interface", f"{BUILD}/hopper && python3 setup.py install; or, for BF16 and f16, "
                   "pip install --no-deps xformers==0.0.34 nvidia-cuda-runtime-cu12"),
    "fa4": Package("FlashAttention-4", "flash_attn.cute", "pip install flash-attn-4"),
    "cudnn_frontend": Package("cuDNN, through its own frontend", "cudnn", FRONTEND),
    "flashinfer": Package("FlashInfer", "flashinfer", "pip install flashinfer-python"),
}
GRADIENTS = ("fa3", "fa4", "cudnn_frontend")  # those whose backward pass is timed
IN_FP8 = ("fa3", "cudnn_frontend")  # those that read e4m3


def module(name: str) -> Any:
    return importlib.import_module(name)


def is_there(name: str) -> bool:
    """Returns whether a module can be found. Looking up a submodule of a missing package would raise."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def absent(who: str, kind: str = "forward", in_fp8: bool = False) -> Contestant | None:
    """Returns a contestant that cannot take part, or None."""
    package = PACKAGES[who]
    if is_there(package.module) or (who == "fa3" and not in_fp8 and flash_attention_3.operators()):
        return None
    return Contestant(who, "", None, skipped=f"its package, {package.module}, is not installed", install=package.install, kind=kind)


def forward(who: str, problem: Any) -> Contestant:
    """Returns a launch of one of MAKERS. For e4m3 problems, those of IN_FP8 read e4m3, and the others BF16."""
    in_fp8 = bool(problem.encoded) and who in IN_FP8
    lacking = absent(who, in_fp8=in_fp8)
    if lacking:
        return lacking
    q, k, v = problem.encoded if in_fp8 else (problem.q, problem.k, problem.v)
    found = Contestant(who, PACKAGES[who].label, None, encoded=in_fp8)
    try:
        found.run = MAKERS[who](q, k, v, bool(problem.shape.causal), problem.shape.scale)
    except Exception as error:  # packages raise all kinds of exceptions
        found.skipped = (str(error).splitlines() or [type(error).__name__])[0]
    return found


def turned(q: Any, k: Any, v: Any) -> list[Any]:
    """Returns [batch, seqlen, heads, head_dim], contiguous, FlashAttention's own layout."""
    return [tensor.transpose(1, 2) for tensor in (q, k, v)]


def flash_attn_func(who: str) -> Any:
    """Returns FlashAttention's function with this name; without FlashAttention-3's own package, from its kernels in xFormers' wheel."""
    return module(PACKAGES[who].module).flash_attn_func if is_there(PACKAGES[who].module) else flash_attention_3.flash_attn_func()


def flash_attention(who: str) -> Any:
    """Returns FlashAttention's function with this name, to be called on views."""
    def make(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
        attend = flash_attn_func(who)

        def run() -> Any:
            o = attend(*turned(q, k, v), softmax_scale=scale, causal=causal)
            return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

        return run

    return make


# ---- cuDNN's graphs ------------------------------------------------------------------------------------------------------------------


@functools.cache
def handle() -> Any:
    """Returns cuDNN's handle, shared by all graphs."""
    return module("cudnn").create_handle()


class Graph:
    """A graph of cuDNN's frontend, and the tensors that belong to its nodes."""

    def __init__(self, dtype: Any) -> None:
        self.cudnn = module("cudnn")
        self.handle = handle()
        kinds = self.cudnn.data_type
        self.kinds = {torch.float8_e4m3fn: kinds.FP8_E4M3, torch.bfloat16: kinds.BFLOAT16, torch.float16: kinds.HALF, torch.float32: kinds.FLOAT,
                      torch.int32: kinds.INT32}
        self.graph = self.cudnn.pygraph(io_data_type=self.kinds[dtype], intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT,
                                        handle=self.handle)
        self.pack: dict[Any, Any] = {}

    def takes(self, tensor: Any) -> Any:
        """Returns a node that reads a tensor."""
        node = self.graph.tensor(dim=list(tensor.shape), stride=list(tensor.stride()), data_type=self.kinds[tensor.dtype])
        self.pack[node] = tensor
        return node

    def gives(self, node: Any, tensor: Any) -> None:
        """Writes a node's result to a tensor."""
        node.set_output(True).set_dim(list(tensor.shape)).set_stride(list(tensor.stride())).set_data_type(self.kinds[tensor.dtype])
        self.pack[node] = tensor

    def built(self) -> Any:
        """Returns a function that launches the graph."""
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans([self.cudnn.heur_mode.A])
        self.graph.check_support()
        self.graph.build_plans()
        workspace = torch.empty(max(1, self.graph.get_workspace_size()), device="cuda", dtype=torch.uint8)

        def launch() -> None:
            self.cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
            self.graph.execute(self.pack, workspace, handle=self.handle)

        return launch


def cudnn_frontend(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """Returns cuDNN's forward pass. In e4m3 all scales are 1, except P's, which is 256, and O is e4m3, since on Hopper
    cuDNN cannot write BF16 from FP8."""
    graph = Graph(q.dtype)
    q_in, k_in, v_in = (graph.takes(tensor) for tensor in (q, k, v))
    out = torch.empty_like(q)
    if q.dtype != torch.float8_e4m3fn:
        o, _ = graph.graph.sdpa(q=q_in, k=k_in, v=v_in, is_inference=True, attn_scale=scale, use_causal_mask=causal)
        graph.gives(o, out)
    else:
        one = lambda value: graph.takes(torch.full((1, 1, 1, 1), value, device="cuda"))
        scales = {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0, "descale_s": 1 / 256, "scale_s": 256.0, "scale_o": 1.0}
        o, stats, *largest = graph.graph.sdpa_fp8(q=q_in, k=k_in, v=v_in, is_inference=False, attn_scale=scale, use_causal_mask=causal,
                                                  **{name: one(value) for name, value in scales.items()})
        graph.gives(o, out)
        graph.gives(stats, torch.empty((*q.shape[:3], 1), device="cuda"))
        for node in largest:
            graph.gives(node, torch.zeros((1, 1, 1, 1), device="cuda"))
    launch = graph.built()

    def run() -> Any:
        launch()
        return out

    return run


def cudnn_gradient(problem: Any) -> Any:
    """Returns cuDNN's backward pass, from the same O and log-sum-exp as ours."""
    graph = Graph(problem.q.dtype)
    gradients = [torch.empty_like(tensor) for tensor in (problem.q, problem.k, problem.v)]
    read = {"q": problem.q, "k": problem.k, "v": problem.v, "o": problem.o, "dO": problem.d_o, "stats": problem.lse.unsqueeze(-1)}
    nodes = graph.graph.sdpa_backward(**{name: graph.takes(tensor) for name, tensor in read.items()}, attn_scale=problem.shape.scale,
                                      use_causal_mask=bool(problem.shape.causal))
    for node, tensor in zip(nodes, gradients, strict=True):
        graph.gives(node, tensor)
    launch = graph.built()

    def run() -> Any:
        launch()
        return gradients

    return run


MAKERS = {"fa3": flash_attention("fa3"), "fa4": flash_attention("fa4"), "cudnn_frontend": cudnn_frontend}
