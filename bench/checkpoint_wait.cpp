// How long a step waits for a save, beside a plain copy of the same tensors into memory that was touched before; alternately.
//
//   build/release/bench/checkpoint_wait FOLDER [SIZE [ROUNDS]]      SIZE: a named size of BERT, default medium
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/seconds.h"
#include "model/hf_weights.h"
#include "train/checkpoint.h"

int main(int argc, char** argv) {
  using namespace tempo;
  using bench::seconds_of;
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_wait FOLDER [SIZE [ROUNDS]]\n");
    return 2;
  }
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / "checkpoint_wait";
  const auto model =
      model::make_model(model::named_size(model::Family::kBert, argc > 2 ? argv[2] : "medium"), c10::kCPU);
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  model->parameters().initialise(1);
  const train::Optimizer optimizer(train::OptimizerConfig(), model->parameters());
  train::NamedTensors tensors = model::named_weights(*model, model::VocabularyRows::kPadded);
  for (auto& entry : optimizer.state()) tensors.push_back(entry);
  train::NamedTensors copies;
  double bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(name, tensor.detach().clone());
    bytes += static_cast<double>(tensor.nbytes());
  }
  std::vector<double> ratios;
  {
    train::CheckpointSaver saver(folder, 1, *model, optimizer, {}, [] {});
    const at::NoGradGuard no_grad;
    std::printf("%.0f MB of state\nsave    step waits    copy    ratio    writing\n", bytes / 1e6);
    for (int round = 1; round <= rounds + 1; ++round) {
      const double waited = seconds_of([&] { saver.save({round, 0, 0, 0, 0, 1}); });
      const double writing = seconds_of([&] { saver.finish(); });
      const double copied = seconds_of([&] {
        for (std::size_t index = 0; index < tensors.size(); ++index) copies[index].second.copy_(tensors[index].second);
      });
      if (round > 1) ratios.push_back(waited / copied);
      std::printf("%4d %10.1f ms %7.1f ms %6.2f %8.2f s\n", round, waited * 1e3, copied * 1e3, waited / copied,
                  writing);
    }
  }
  std::filesystem::remove_all(folder);
  std::sort(ratios.begin(), ratios.end());
  std::printf("ratio from the second save on: median %.2f, %.2f to %.2f\n", ratios[ratios.size() / 2], ratios.front(),
              ratios.back());
  return 0;
}
