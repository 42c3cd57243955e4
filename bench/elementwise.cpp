// Time of elementwise operators on one thread, streaming through memory that was touched before.
//
//   build/release/elementwise [MILLIONS OF ELEMENTS [ROUNDS]]      default 16, 21
//
// GELU's backward passes are beside ATen's at::gelu_backward, alternately: "in place" makes the gradient of the input and GELU's
// output again (recompute), "from output" inverts the output (tempo). Dropout's forward pass is beside a copy of the tensor, for
// each type and each way to keep the mask.
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

void compare_gelu(GeluForm form, std::int64_t size, int rounds) {
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

void time_dropout(at::ScalarType type, std::int64_t size, int rounds) {
  const std::int64_t rows = size / 1024;
  const at::Tensor x = at::randn({rows, 1024}).to(type);
  at::Tensor into = at::zeros_like(x);
  Sequences sequences;
  for (std::int64_t start = 0; start < rows; start += 512) sequences.host_starts.push_back(start);
  sequences.host_starts.push_back(rows);
  sequences.starts = at::tensor(sequences.host_starts, at::kLong);
  sequences.ids = at::arange(sequences.starts.numel() - 1, at::kLong);
  const MaskKeep keeps[3] = {MaskKeep::kBytes, MaskKeep::kBits, MaskKeep::kNothing};
  std::vector<double> copy, ours[3];
  for (int round = 0; round <= rounds; ++round) {
    const double base = seconds_of([&] { into.copy_(x); });
    double taken[3];
    for (int i = 0; i < 3; ++i) taken[i] = seconds_of([&] { dropout(x, sequences, {0.1, 1, round, 1}, keeps[i]); });
    if (round == 0) continue;
    copy.push_back(base);
    for (int i = 0; i < 3; ++i) ours[i].push_back(taken[i]);
  }
  const auto nanoseconds = [&](const std::vector<double>& times) {
    return median(times) / static_cast<double>(rows * 1024) * 1e9;
  };
  std::printf("dropout %-8s  copy %.3f ns per element; mask as bytes %.3f, as bits %.3f, not kept %.3f\n",
              toString(type), nanoseconds(copy), nanoseconds(ours[0]), nanoseconds(ours[1]), nanoseconds(ours[2]));
}

}  // namespace

int main(int argc, char** argv) {
  tempo::train::install_memory_tracker();  // it keeps freed blocks: results lie in memory that was touched, too
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const std::int64_t size = (argc > 1 ? std::atoll(argv[1]) : 16) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kTanh}) compare_gelu(form, size, rounds);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) time_dropout(type, size, rounds);
  return 0;
}
