// Time of GELU's backward passes beside ATen's, at::gelu_backward into memory that was touched before; one thread, alternately.
//
//   build/release/gelu_backward [MILLIONS OF ELEMENTS [ROUNDS]]      default 16, 21
//
// "in place" makes the gradient of the input and GELU's output again (recompute), "from output" inverts the output (tempo).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/seconds.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"
#include "train/memory_tracker.h"

namespace {

using namespace tempo::layers;
using tempo::bench::seconds_of;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(GeluForm form, std::int64_t size, int rounds) {
  const auto in_place =
      find_operator<void(const at::Tensor&, const at::Tensor&, std::int64_t)>("tempo::gelu_backward_in_place_");
  const auto with_mask =
      find_operator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, std::int64_t, std::int64_t)>(
          "tempo::gelu_with_mask");
  const auto from_output =
      find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, std::int64_t)>(
          "tempo::gelu_backward_from_output");
  const auto number = static_cast<std::int64_t>(form);
  const auto masks_packed = static_cast<std::int64_t>(MaskKeep::kBits);
  const auto masks_byte = static_cast<std::int64_t>(MaskKeep::kBytes);
  const char* const approximate = form == GeluForm::kExact ? "none" : "tanh";
  const at::Tensor x = at::randn({size});
  const at::Tensor grad = at::randn({size});
  const auto [y, bits] = with_mask.call(x, number, masks_packed);
  const at::Tensor bytes = std::get<1>(with_mask.call(x, number, masks_byte));
  at::Tensor into = at::zeros({size});
  at::Tensor grad_work = at::empty({size});
  at::Tensor x_work = at::empty({size});
  std::vector<double> aten, ratios[3];
  for (int round = 0; round <= rounds; ++round) {
    grad_work.copy_(grad);
    x_work.copy_(x);
    const double base = seconds_of([&] { at::gelu_backward_out(into, grad, x, approximate); });
    const double ours[3] = {
        seconds_of([&] { in_place.call(grad_work, x_work, number); }),
        seconds_of([&, &y = y, &bits = bits] { from_output.call(grad, y, bits, number, masks_packed); }),
        seconds_of([&, &y = y] { from_output.call(grad, y, bytes, number, masks_byte); })};
    if (round == 0) continue;  // pages and the allocator's cache
    aten.push_back(base);
    for (int i = 0; i < 3; ++i) ratios[i].push_back(ours[i] / base);
  }
  std::printf("%-5s  ATen %.3f ns per element; ratios: in place %.2f, from output with bits %.2f, with bytes %.2f\n",
              approximate, median(aten) / static_cast<double>(size) * 1e9, median(ratios[0]), median(ratios[1]),
              median(ratios[2]));
}

}  // namespace

int main(int argc, char** argv) {
  tempo::train::install_memory_tracker();  // it keeps freed blocks: results lie in memory that was touched, too
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const std::int64_t size = (argc > 1 ? std::atoll(argv[1]) : 16) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) compare(form, size, rounds);
  return 0;
}
