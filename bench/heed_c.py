"""The part of heed.h that benchmarks need, by ctypes. Tensors are anything with data_ptr(), shape and stride()."""

import ctypes
import json

F32, F16, BF16 = 0, 1, 2
MASK_NONE, MASK_BOTTOM_RIGHT = 0, 2


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


class Mask(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("left", ctypes.c_int64),
        ("right", ctypes.c_int64),
        ("sink", ctypes.c_int64),
    ]


class ForwardArgs(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Tensor) for name in ("q", "k", "v", "o", "lse")]
        + [("mask", Mask), ("bool_mask", Tensor), ("block_mask", Tensor)]
        + [("block_q", ctypes.c_int64), ("block_k", ctypes.c_int64)]
        + [(name, Tensor) for name in ("bias", "alibi_slopes", "sink")]
        + [(name, ctypes.c_double) for name in ("scale", "soft_cap", "dropout_p")]
        + [("dropout_seed", ctypes.c_uint64), ("dropout_offset", ctypes.c_uint64)]
        + [(name, Tensor) for name in ("randval", "seqstart_q", "seqstart_k", "seqlen_q", "seqlen_k")]
        + [("math", ctypes.c_int32), ("reserved", ctypes.c_int32)]
        + [("max_s_q", ctypes.c_int64), ("max_s_k", ctypes.c_int64), ("dropout_state", Tensor)]
    )


class BackwardArgs(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("forward", ctypes.POINTER(ForwardArgs))]
        + [(name, Tensor) for name in ("d_o", "dq", "dk", "dv", "d_lse", "dbias", "dsink", "dslopes")]
        + [("dq_accumulation", ctypes.c_int32), ("deterministic", ctypes.c_int32)]
    )


class RunOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("executor", ctypes.c_void_p),
        ("engine", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
    ]


class ContextOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("max_cpu_isa", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("cuda_family", ctypes.c_char_p),
        ("cuda_algo", ctypes.c_char_p),
        ("cuda_backward_algo", ctypes.c_char_p),
    ]


def view(tensor, data_type):
    """[b, s, h, d] over a tensor that is stored as [b, h, s, d], whatever its strides."""
    b, h, s, d = tensor.shape
    step_b, step_h, step_s, step_d = tensor.stride()
    sizes = (ctypes.c_int64 * 4)(b, s, h, d)
    return Tensor(tensor.data_ptr(), data_type, 4, sizes, (ctypes.c_int64 * 4)(step_b, step_s, step_h, step_d))


def lse_view(tensor):
    """[b, h, s] of f32."""
    return Tensor(tensor.data_ptr(), F32, 3, (ctypes.c_int64 * 4)(*tensor.shape), (ctypes.c_int64 * 4)(*tensor.stride()))


class Heed:
    """A context of libheed.so with so many threads."""

    def __init__(self, library, threads, max_isa=None, cuda_family=None, cuda_algo=None, cuda_backward_algo=None):
        self.lib = ctypes.CDLL(str(library))
        self.lib.heed_last_error.restype = ctypes.c_char_p
        self.lib.heed_version.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        texts = [text.encode() if text else None for text in (max_isa, cuda_family, cuda_algo, cuda_backward_algo)]
        options = ContextOptions(ctypes.sizeof(ContextOptions), texts[0], threads, 0, *texts[1:])
        self.check(self.lib.heed_context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def close(self):
        self.lib.heed_context_destroy(self.context)
        self.context = ctypes.c_void_p()

    def check(self, status):
        if status != 0:
            raise RuntimeError("heed: " + self.lib.heed_last_error().decode())

    def version(self):
        return self.lib.heed_version().decode()

    def text(self, function, *arguments):
        """What a function that hands out a text says."""
        result = ctypes.c_char_p()
        self.check(function(self.context, *arguments, ctypes.byref(result)))
        value = result.value.decode()
        self.lib.heed_string_free(result)
        return value

    def kernel(self, args):
        return json.loads(self.text(self.lib.heed_explain_json, ctypes.byref(args), None))["chosen"]["name"]

    def backward_kernel(self, args):
        return json.loads(self.text(self.lib.heed_backward_explain_json, ctypes.byref(args), None))["chosen"]["name"]

    def isa(self):
        """The highest level that this context runs here."""
        order = ["baseline", "avx2", "avx512", "avx512bf16", "amx"]
        kernels = json.loads(self.text(self.lib.heed_kernels_json, None))["kernels"]
        return max((each["arch"] for each in kernels if each["runs_here"] and each["engine"] == "cpu"), key=order.index)

    @staticmethod
    def args(q, k, v, o, data_type, causal):
        mask = Mask(MASK_BOTTOM_RIGHT, 0, -1, 0, 0) if causal else Mask()
        args = ForwardArgs(struct_size=ctypes.sizeof(ForwardArgs), mask=mask)
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)):
            setattr(args, name, view(tensor, data_type))
        return args

    def forward(self, args):
        self.check(self.lib.heed_forward(self.context, ctypes.byref(args), None))

    def backward(self, args):
        self.check(self.lib.heed_backward(self.context, ctypes.byref(args), None))

    def forward_on_stream(self, args, stream):
        options = RunOptions(struct_size=ctypes.sizeof(RunOptions), stream=stream)
        self.check(self.lib.heed_forward(self.context, ctypes.byref(args), ctypes.byref(options)))

    @staticmethod
    def backward_args(args, lse, d_o, dq, dk, dv, data_type, deterministic=False):
        """Of the forward call with `args`; lse is f32 [b, h, s]."""
        args.lse = lse_view(lse)
        backward = BackwardArgs(struct_size=ctypes.sizeof(BackwardArgs), deterministic=int(deterministic))
        backward.forward = ctypes.pointer(args)
        for name, tensor in (("d_o", d_o), ("dq", dq), ("dk", dk), ("dv", dv)):
            setattr(backward, name, view(tensor, data_type))
        return backward

    def backward_plan(self, args):
        """The plan, its kernel and the bytes of its workspace."""
        plan = ctypes.c_void_p()
        self.check(self.lib.heed_backward_plan_create(self.context, ctypes.byref(args), None, ctypes.byref(plan)))
        self.lib.heed_plan_kernel.restype = ctypes.c_char_p
        self.lib.heed_plan_workspace_bytes.restype = ctypes.c_size_t
        return plan, self.lib.heed_plan_kernel(plan).decode(), self.lib.heed_plan_workspace_bytes(plan)

    def run_backward_plan(self, plan, args, workspace, stream):
        size = ctypes.c_size_t(workspace.numel() * workspace.element_size())
        memory = ctypes.c_void_p(workspace.data_ptr())
        run = self.lib.heed_backward_plan_run_on_stream
        self.check(run(plan, ctypes.byref(args), memory, size, ctypes.c_void_p(stream)))
