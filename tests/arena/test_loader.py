from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dice_core.arena.build import BuildFarm
from dice_core.arena.capture import BuildRequest
from dice_core.arena.loader import LoadError, load_artefact

# One module with many functions keeps the compile time down; every function is checked against torch below.
KERNELS = r"""
enum PlainEnum { PLAIN_ENUM = 7 };
#include <cmath>
#include <algorithm>

#define CHECK_CPU(x) TORCH_CHECK((x).is_cpu(), #x " must be on the CPU")
#define CHECK_INPUT(x) CHECK_CPU(x); TORCH_CHECK((x).is_contiguous(), #x " must be contiguous")

torch::Tensor relu(torch::Tensor x) {
  CHECK_INPUT(x);
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* b = y.data_ptr<float>();
  at::parallel_for(0, x.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) b[i] = std::max(a[i], 0.0f);
  });
  return y;
}
torch::Tensor row_softmax(const torch::Tensor& input) {
  TORCH_CHECK(input.dim() == 2, "expected a matrix, got ", input.dim(), " dimensions of ", input.sizes());
  auto x = input.contiguous();
  auto y = torch::empty({x.size(0), x.size(-1)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "row_softmax", ([&] {
    const scalar_t* a = x.data_ptr<scalar_t>();
    scalar_t* b = y.data_ptr<scalar_t>();
    const int64_t n = x.size(1);
    for (int64_t r = 0; r < x.size(0); ++r) {
      scalar_t top = a[r * n];
      for (int64_t i = 1; i < n; ++i) top = std::max(top, a[r * n + i]);
      scalar_t total = 0;
      for (int64_t i = 0; i < n; ++i) total += b[r * n + i] = std::exp(a[r * n + i] - top);
      for (int64_t i = 0; i < n; ++i) b[r * n + i] /= total;
    }
  }));
  return y;
}
torch::Tensor matmul(torch::Tensor a, torch::Tensor b, c10::optional<torch::Tensor> bias) {
  TORCH_CHECK_EQ(a.size(1), b.size(0));
  auto c = torch::zeros({a.size(0), b.size(1)}, a.options());
  const float *p = a.data_ptr<float>(), *q = b.data_ptr<float>();
  float* r = c.data_ptr<float>();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) r[i * n + j] += p[i * k + l] * q[l * n + j];
  if (bias.has_value() && bias->defined())
    for (int64_t i = 0; i < m * n; ++i) r[i] += bias.value().data_ptr<float>()[i % n];
  return c;
}
std::vector<torch::Tensor> moments(torch::Tensor x) {
  auto mean = torch::zeros({1}, torch::dtype(torch::kFloat64).device(torch::kCPU));
  auto square = torch::zeros_like(mean);
  for (int64_t i = 0; i < x.numel(); ++i) {
    mean.data_ptr<double>()[0] += x.data_ptr<float>()[i];
    square.data_ptr<double>()[0] += x.data_ptr<float>()[i] * x.data_ptr<float>()[i];
  }
  return {mean, square};
}
std::tuple<torch::Tensor, int64_t> argmax(torch::Tensor x) {
  auto where = torch::full({1}, -1, torch::TensorOptions().dtype(torch::kLong));
  const float* a = x.data_ptr<float>();
  where.data_ptr<int64_t>()[0] = std::max_element(a, a + x.numel()) - a;
  return {where, where.item<int64_t>()};
}
void add_in_place(torch::Tensor x, double value) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] += value;
}
torch::Tensor half_twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "half_twice", [&] {
    for (int64_t i = 0; i < x.numel(); ++i)
      y.data_ptr<scalar_t>()[i] = x.data_ptr<scalar_t>()[i] + x.data_ptr<scalar_t>()[i];
  });
  return y;
}
torch::Tensor views(torch::Tensor x) {
  return x.transpose(0, 1).reshape({-1}).unsqueeze(0).squeeze(0).view({2, -1}).t();
}
torch::Tensor converted(torch::Tensor x) { return x.to(torch::kDouble).permute({1, 0}).contiguous(); }
torch::Tensor concatenated(std::vector<torch::Tensor> parts) {
  int64_t n = 0;
  for (const auto& part : parts) n += part.numel();
  auto y = torch::empty({n}, parts.at(0).options());
  float* out = y.data_ptr<float>();
  for (auto& part : parts) out = std::copy_n(part.data_ptr<float>(), part.numel(), out);
  return y;
}
std::string describe(torch::Tensor x) {
  TORCH_CHECK(false, x.dtype(), "|", x.scalar_type(), "|", x.device(), "|", x.sizes(), "|", x.strides(), "|", 2.5f, "|",
              true, "|", std::string("s"), "|", x.is_floating_point(), "|", PLAIN_ENUM);
}
torch::Tensor shaped(std::vector<int64_t> size, int kind) {
  if (kind == 0) return torch::ones(size);
  if (kind == 1) return torch::full(size, 2);
  if (kind == 2) return torch::empty(size).fill_(1.5);
  if (kind == 4) return torch::tensor(size);
  if (kind == 5) return torch::tensor(size, torch::TensorOptions().dtype(torch::kFloat));
  if (kind == 6) return torch::tensor(2.5);
  return torch::full(size, (int64_t)9007199254740993LL, torch::kInt64);
}
int64_t whole(int64_t x) { return x; }
int narrow(int x) { return x; }
double real(double x) { return x; }
double first(torch::Tensor x, int kind) {
  if (kind == 0) return x.item().toInt();
  return kind == 1 ? x.item().toDouble() : static_cast<double>(x.item().to<int64_t>());
}
bool truth(bool x) { return x; }
torch::Tensor undefined() { return torch::Tensor(); }
void throws(int kind) {
  if (kind == 0) throw std::invalid_argument("a plain exception");
  at::parallel_for(0, 10, 1, [](int64_t, int64_t) { TORCH_CHECK(false, "raised in a thread"); });
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "kernels";
  m.def("relu", &relu, "ReLU");
  m.def("row_softmax", torch::wrap_pybind_function(row_softmax));
  m.def("matmul", &matmul, py::arg("a"), py::arg("b"), py::arg("bias") = py::none());
  m.def("moments", &moments);
  m.def("argmax", &argmax);
  m.def("add_in_place", &add_in_place, "adds", py::arg("x"), py::arg("value") = 1.0);
  m.def("half_twice", &half_twice);
  m.def("views", &views);
  m.def("converted", &converted);
  m.def("concatenated", &concatenated);
  m.def("describe", &describe);
  m.def("shaped", &shaped);
  m.def("whole", &whole);
  m.def("narrow", &narrow);
  m.def("real", &real);
  m.def("first", &first);
  m.def("truth", &truth);
  m.def("undefined", &undefined);
  m.def("throws", &throws);
  m.def("either", [](torch::Tensor x) { return x.numel(); });
  m.def("either", [](const std::string& x) { return static_cast<int64_t>(x.size()); });
}
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> BuildFarm:
    return BuildFarm(tmp_path_factory.mktemp("cache"), device="cpu", jobs=1, tiers=("light",))


@pytest.fixture(scope="module")
def kernels(farm: BuildFarm) -> Any:
    torch.set_num_threads(1)
    result = farm.build(BuildRequest("kernels", cpp_sources=(KERNELS,)))
    assert (result.status, result.tier) == ("ok", "light"), result.log
    return load_artefact(result)


def test_results_equal_torch(kernels: Any) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(7, 12), torch.randn(12, 5), torch.randn(5)
    assert torch.equal(kernels.relu(x), x.relu())
    for data in (x, x.double(), x.t()):
        assert torch.allclose(kernels.row_softmax(data), data.softmax(-1))
    assert torch.allclose(kernels.matmul(x, w, b), x @ w + b, atol=1e-5)
    assert torch.allclose(kernels.matmul(b=w, a=x), x @ w, atol=1e-5)
    mean, square = kernels.moments(x)
    assert torch.allclose(torch.cat([mean, square]), torch.stack([x.double().sum(), (x * x).double().sum()]))
    where, index = kernels.argmax(x)
    assert where.item() == index == x.argmax().item()
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(kernels.half_twice(x.to(dtype)), x.to(dtype) + x.to(dtype))
    assert torch.equal(kernels.views(x), x.t().reshape(2, -1).t())
    assert torch.equal(kernels.converted(x), x.double().t())
    assert torch.equal(kernels.concatenated([x, w]), torch.cat([x.view(-1), w.view(-1)]))
    copy = x.clone()
    assert kernels.add_in_place(copy) is None
    kernels.add_in_place(copy, value=2)
    assert torch.allclose(copy, x + 3)


def test_factories_follow_torchs_defaults(kernels: Any) -> None:
    assert torch.equal(kernels.shaped([2, 3], 0), torch.ones(2, 3))
    assert torch.equal(kernels.shaped((2,), 1), torch.full((2,), 2))
    assert torch.equal(kernels.shaped([], 2), torch.tensor(1.5))
    assert kernels.shaped([1], 3).item() == 2**53 + 1
    for made, wanted in (
        (kernels.shaped([2, 2**40], 4), torch.tensor([2, 2**40])),
        (kernels.shaped([2, 3], 5), torch.tensor([2.0, 3.0])),
        (kernels.shaped([], 6), torch.tensor(2.5)),
    ):
        assert made.dtype is wanted.dtype and torch.equal(made, wanted)
    torch.set_default_dtype(torch.float64)
    try:
        assert kernels.shaped([1], 0).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_strides_of_a_like_tensor_are_kept(kernels: Any) -> None:
    x = torch.randn(3, 4).t()
    assert kernels.half_twice(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)).stride() == (60, 1, 15, 3)
    assert x.stride() == (1, 4) and kernels.half_twice(x.contiguous()).stride() == (3, 1)


def test_arguments_that_do_not_fit_raise_type_error(kernels: Any) -> None:
    x = torch.randn(2, 2)
    for call in (
        lambda: kernels.relu(),
        lambda: kernels.relu(x, x),
        lambda: kernels.relu(None),
        lambda: kernels.relu([1.0]),
        lambda: kernels.matmul(x, x, 3),
        lambda: kernels.matmul(x, x, wrong=x),
        lambda: kernels.matmul(x, x, a=x),
        lambda: kernels.concatenated("xx"),
        lambda: kernels.concatenated([x, 1]),
        lambda: kernels.whole(1.5),
        lambda: kernels.whole("1"),
        lambda: kernels.narrow(2**31),
        lambda: kernels.whole(2**63),
        lambda: kernels.real("1"),
        lambda: kernels.either(3.0),
    ):
        with pytest.raises(TypeError):
            call()


def test_numbers_convert_as_in_pybind11(kernels: Any) -> None:
    assert kernels.whole(-(2**63)) == -(2**63)
    assert kernels.whole(True) == 1
    assert kernels.whole(torch.tensor(3)) == 3
    assert kernels.real(3) == 3.0
    assert kernels.real(torch.tensor(2.5)) == 2.5
    assert kernels.truth(0) is False and kernels.truth([1] and True) is True and kernels.truth(None) is False
    assert kernels.either(torch.zeros(4)) == 4 and kernels.either("abc") == 3
    assert kernels.undefined() is None


def test_item_without_a_type_gives_a_number(kernels: Any) -> None:
    assert kernels.first(torch.tensor([-3], dtype=torch.int32), 0) == -3
    assert kernels.first(torch.tensor(2.75, dtype=torch.bfloat16), 1) == 2.75
    assert kernels.first(torch.tensor(-2.75), 0) == -2
    assert kernels.first(torch.tensor(2**40), 2) == 2**40
    for value, kind in ((2**40, 0), (1e30, 2), (float("nan"), 0)):
        with pytest.raises(RuntimeError, match="without overflow"):
            kernels.first(torch.tensor(value), kind)
    with pytest.raises(RuntimeError):
        kernels.first(torch.zeros(2), 0)


def test_errors_carry_their_message(kernels: Any) -> None:
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        kernels.relu(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        kernels.relu(torch.zeros(2, 3).t())
    with pytest.raises(RuntimeError, match=r"got 1 dimensions of \[4\]"):
        kernels.row_softmax(torch.zeros(4))
    with pytest.raises(RuntimeError, match=r'"row_softmax" not implemented for .Int.'):
        kernels.row_softmax(torch.zeros(2, 2, dtype=torch.int32))
    with pytest.raises(RuntimeError, match=r"4 vs\. 3"):
        kernels.matmul(torch.zeros(2, 4), torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match="a plain exception"):
        kernels.throws(0)
    with pytest.raises(RuntimeError, match="raised in a thread"):
        kernels.throws(1)
    with pytest.raises(RuntimeError) as caught:
        kernels.describe(torch.zeros(2, 3))
    assert str(caught.value) == "float|Float|cpu|[2, 3]|[3, 1]|2.5|1|s|1|7"


def test_parameters_and_autograd_pass_through(kernels: Any) -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4))
    assert torch.equal(kernels.relu(weight), weight.detach().relu())
    assert kernels.views(weight).requires_grad
    kernels.views(weight).sum().backward()
    assert torch.equal(weight.grad, torch.ones(3, 4))


def test_calls_neither_leak_nor_free_twice(kernels: Any) -> None:
    def resident_kb() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    x = torch.randn(64, 64)

    def round_trip() -> None:
        kernels.relu(x)
        kernels.moments(x)
        kernels.argmax(x)
        kernels.concatenated([x, x])
        with pytest.raises(RuntimeError):
            kernels.row_softmax(x[0])

    for _ in range(100):
        round_trip()
    before = resident_kb()
    for _ in range(1000):
        round_trip()
    # One leaked 16 kB result a call would be 16 MB.
    assert resident_kb() - before < 4_000
    result = kernels.relu(x)
    gone = weakref.ref(result)
    del result
    gc.collect()
    assert gone() is None


def test_the_same_artefact_is_loaded_once(farm: BuildFarm, kernels: Any) -> None:
    assert load_artefact(farm.build(BuildRequest("again", cpp_sources=(KERNELS,)))) is kernels


def test_what_cannot_be_loaded_says_why(farm: BuildFarm, tmp_path: Path) -> None:
    result = farm.build(BuildRequest("kernels", cpp_sources=(KERNELS,)))
    with pytest.raises(LoadError, match="compile_error"):
        load_artefact(replace(result, status="compile_error", module_name="other"))
    with pytest.raises(LoadError, match="missing"):
        load_artefact(replace(result, artefact=str(tmp_path / "no.so"), module_name="other"))
    (tmp_path / "bad.so").write_bytes(b"not a library")
    with pytest.raises(LoadError, match=r"bad\.so"):
        load_artefact(replace(result, artefact=str(tmp_path / "bad.so"), module_name="other"))
    with pytest.raises(LoadError, match="PyInit_other"):
        load_artefact(replace(result, module_name="other"))


ATEN = r"""
torch::Tensor mixed(torch::Tensor x, std::optional<torch::Tensor> bias, std::vector<int64_t> extra, double k = 2.0) {
  TORCH_CHECK(x.dim() == 2, "x must have two dimensions");
  auto y = torch::rsqrt(x.abs().add_(1.0)) * k;
  if (bias) y = y + *bias;
  auto row = torch::tensor(extra, y.options());
  return torch::cat({y, row.unsqueeze(0), torch::zeros({1, x.size(1)}, x.options())});
}
std::tuple<torch::Tensor, int64_t> largest(torch::Tensor x) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "largest", [&] { (void)x.data_ptr<scalar_t>(); });
  return {x.max(), x.argmax().item().toLong()};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("mixed", &mixed, py::arg("x"), py::arg("bias"), py::arg("extra"), py::arg("k") = 2.0);
  m.def("largest", &largest);
}
"""


def test_operators_of_torch_are_built_in_the_aten_tier(farm: BuildFarm) -> None:
    result = BuildFarm(farm.cache_dir, device="cpu", jobs=1).build(BuildRequest("aten", cpp_sources=(ATEN,)))
    assert (result.status, result.tier) == ("ok", "aten"), result.log
    assert not any("dice_light" in part for argv in result.argv for part in argv), "the light headers were in reach"
    module = load_artefact(result)
    x = torch.nn.Parameter(torch.randn(3, 2))
    wanted = torch.cat([(x.abs() + 1).rsqrt() * 3 + 1, torch.tensor([[4.0, 5.0]]), torch.zeros(1, 2)])
    got = module.mixed(x, torch.ones(2), [4, 5], k=3)
    assert torch.allclose(got, wanted) and got.requires_grad
    assert torch.allclose(module.mixed(x=x, bias=None, extra=[4, 5])[:3], (x.abs() + 1).rsqrt() * 2)
    value, index = module.largest(x)
    assert value == x.max() and index == x.argmax()
    with pytest.raises(RuntimeError, match=r"^x must have two dimensions"):
        module.mixed(x[0], None, [])
    with pytest.raises(NotImplementedError, match=r'"largest" not implemented for .Long.'):
        module.largest(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError):
        module.mixed(1, None, [])
