// Sample inputs of every differentiable operator, each with a reference made of ATen's own operators, and the only table of
// tolerances. It drives the value, gradient, shape and layout tests of tests/layers/ops_test.cpp.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "layers/math/dropout.h"
#include "layers/ops/ops.h"

namespace tempo::testing {

using Tensors = std::vector<at::Tensor>;
using Apply = std::function<at::Tensor(const Tensors&)>;

/// The first `num_differentiable` inputs are float64 and get gradients; the others are used as they are. Results are one tensor.
struct OpCase {
  std::string name;
  Tensors inputs;
  std::size_t num_differentiable;
  Apply ours;
  Apply reference;
};

inline void PrintTo(const OpCase& op, std::ostream* out) { *out << op.name; }

/// The types that tensors of an operator may have; double serves gradient checks.
inline const std::vector<at::ScalarType> kStorageTypes = {at::kFloat, at::kBFloat16, at::kHalf};

/// Largest allowed |ours - reference| / max(1, largest |reference|). In 16 bits it is `units` unit roundoffs, 2^-8 or 2^-11:
/// one is the rounding of a result, the rest that of tensors in between.
struct Tolerance {
  double float64;
  double float32;
  double units;

  double of(at::ScalarType type) const {
    if (type == at::kBFloat16) return units / 256;
    if (type == at::kHalf) return units / 2048;
    return type == at::kDouble ? float64 : float32;
  }
};

inline Tolerance tolerance_of(const std::string& case_name) {
  const auto is = [&](const char* op) { return case_name.rfind(op, 0) == 0; };
  // One last place of a kept output hides 1e-8 of the slope next to the minimum, in fp32 5e-5, in fp16 and bf16 7e-3 and 1.6e-2
  // (math/gelu_inverse.h). Gradients have four times the tolerance.
  if (is("gelu_from_output")) return {1e-8, 1.2e-5, 2};
  if (is("gelu")) return {1e-14, 4e-7, 1};
  for (const char* product : {"mlp", "linear", "qkv_linear", "attention", "layer_norm_qkv", "layer_norm_linear"}) {
    if (is(product)) return {1e-13, 2e-6, 2.5};
  }
  return {1e-13, 1e-6, 1};
}

inline at::Tensor random(at::IntArrayRef shape, std::uint64_t seed, double scale = 1) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  auto generator = at::detail::createCPUGenerator(seed);
  return tensor.normal_(0, scale, generator);
}

inline at::Tensor whole(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

/// Sequences with the given slots, real lengths and example numbers.
inline layers::Sequences sequences(const std::vector<std::int64_t>& slots, const std::vector<std::int64_t>& lengths,
                                   const std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t count : slots) starts.push_back(starts.back() + count);
  return {whole(starts), whole(lengths), whole(ids), starts};
}

/// 0, or the dropout scale, for element (row, channel) of a [rows, size] tensor of one sequence.
inline at::Tensor dropout_factors(const layers::DropoutSite& site, std::int64_t head, std::int64_t example,
                                  std::int64_t rows, std::int64_t size) {
  at::Tensor factors = at::zeros({rows, size}, at::kDouble);
  const layers::math::DropoutKey key{site.seed, static_cast<std::uint32_t>(site.step),
                                     static_cast<std::uint32_t>(site.site),
                                     layers::math::dropout_threshold(site.drop_probability)};
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < size; ++c) {
      const auto words =
          layers::math::dropout_words(key, static_cast<std::uint32_t>(c / 8), static_cast<std::uint32_t>(head),
                                      static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(example));
      if (layers::math::dropout_keeps(key, words, static_cast<int>(c % 8)))
        factors[r][c] = static_cast<double>(key.scale());
    }
  }
  return factors;
}

inline at::Tensor dropout_factors(const layers::DropoutSite& site, const layers::Sequences& in, std::int64_t size) {
  Tensors parts;
  for (std::size_t b = 0; b + 1 < in.host_starts.size(); ++b) {
    parts.push_back(dropout_factors(site, 0, in.ids[static_cast<std::int64_t>(b)].item<std::int64_t>(),
                                    in.host_starts[b + 1] - in.host_starts[b], size));
  }
  return at::cat(parts);
}

/// Attention out of ATen's own operators, one sequence and head at a time.
inline at::Tensor reference_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      std::int64_t num_heads, bool is_causal, const layers::Sequences& in,
                                      const layers::DropoutSite& site) {
  const std::int64_t head_size = q.size(1) / num_heads;
  Tensors sequences_out;
  for (std::size_t b = 0; b + 1 < in.host_starts.size(); ++b) {
    const std::int64_t length = in.lengths[static_cast<std::int64_t>(b)].item<std::int64_t>();
    const std::int64_t slots = in.host_starts[b + 1] - in.host_starts[b];
    Tensors heads_out;
    for (std::int64_t h = 0; h < num_heads; ++h) {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(0, in.host_starts[b], length).narrow(1, h * head_size, head_size);
      };
      at::Tensor scores = at::mm(part(q), part(k).t()) / std::sqrt(static_cast<double>(head_size));
      if (is_causal) {
        const at::Tensor is_later = at::triu(at::ones({length, length}, at::kBool), 1);
        scores = scores.masked_fill(is_later, -std::numeric_limits<double>::infinity());
      }
      at::Tensor weights = at::softmax(scores, 1);
      if (site.drop_probability > 0) {
        const std::int64_t example = in.ids[static_cast<std::int64_t>(b)].item<std::int64_t>();
        weights = weights * dropout_factors(site, h, example, length, length).to(weights.scalar_type());
      }
      heads_out.push_back(at::constant_pad_nd(at::mm(weights, part(v)), {0, 0, 0, slots - length}));
    }
    sequences_out.push_back(at::cat(heads_out, 1));
  }
  return at::cat(sequences_out);
}

inline void add_gelu_from_output_cases(std::vector<OpCase>& cases) {
  for (const auto form : {layers::GeluForm::kExact, layers::GeluForm::kTanh}) {
    for (const auto masks : {layers::MaskKeep::kBits, layers::MaskKeep::kBytes}) {
      const bool exact = form == layers::GeluForm::kExact;
      for (const auto& shape : std::vector<std::vector<std::int64_t>>{{3, 37}, {1, 1}, {0, 8}, {70, 1031}}) {
        cases.push_back({std::string("gelu_from_output_") + (exact ? "exact_" : "tanh_") +
                             (masks == layers::MaskKeep::kBits ? "packed_" : "byte_") + std::to_string(shape[0]),
                         {random(shape, 26, 2.5)},
                         1,
                         [=](const Tensors& in) { return layers::gelu(in[0], form, layers::GeluKeep::kOutput, masks); },
                         [exact](const Tensors& in) { return at::gelu(in[0], exact ? "none" : "tanh"); }});
      }
    }
  }
}

inline void add_mlp_cases(std::vector<OpCase>& cases) {
  for (const auto form : {layers::GeluForm::kExact, layers::GeluForm::kTanh}) {
    for (const auto keep : {layers::MlpKeep::kGeluInput, layers::MlpKeep::kMlpInput}) {
      const bool exact = form == layers::GeluForm::kExact;
      for (const std::int64_t rows : {0, 1, 5, 33}) {
        cases.push_back(
            {std::string("mlp_") + (exact ? "exact_" : "tanh_") +
                 (keep == layers::MlpKeep::kGeluInput ? "gelu_input_" : "mlp_input_") + std::to_string(rows),
             {random({rows, 7}, 27), random({29, 7}, 28), random({29}, 29), random({7, 29}, 30), random({7}, 31)},
             5,
             [=](const Tensors& in) { return layers::mlp(in[0], in[1], in[2], in[3], in[4], form, keep); },
             [exact](const Tensors& in) {
               const at::Tensor x = at::linear(in[0], in[1], in[2]);
               return at::linear(at::gelu(x, exact ? "none" : "tanh"), in[3], in[4]);
             }});
      }
    }
  }
}

/// What masks may be kept as, with names for cases.
inline std::vector<std::pair<layers::MaskKeep, std::string>> mask_keeps() {
  return {
      {layers::MaskKeep::kBytes, "bytes"}, {layers::MaskKeep::kBits, "bits"}, {layers::MaskKeep::kNothing, "nothing"}};
}

inline void add_elementwise_cases(std::vector<OpCase>& cases) {
  for (const auto form : {layers::GeluForm::kExact, layers::GeluForm::kTanh}) {
    const bool exact = form == layers::GeluForm::kExact;
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{3, 37}, {1, 1}, {0, 8}, {70, 1031}}) {
      cases.push_back({std::string(exact ? "gelu_exact_" : "gelu_tanh_") + std::to_string(shape[0]),
                       {random(shape, 1, 2.5)},
                       1,
                       [form](const Tensors& in) { return layers::gelu(in[0], form); },
                       [exact](const Tensors& in) { return at::gelu(in[0], exact ? "none" : "tanh"); }});
    }
  }
  for (const std::int64_t rows : {0, 1, 5, 130}) {
    for (const std::int64_t size : {1, 8, 37, 1024}) {
      cases.push_back({"layer_norm_" + std::to_string(rows) + "x" + std::to_string(size),
                       {random({rows, size}, 2) + 0.5, random({size}, 3), random({size}, 4)},
                       3,
                       [](const Tensors& in) { return layers::layer_norm(in[0], in[1], in[2], 1e-5); },
                       [size](const Tensors& in) { return at::layer_norm(in[0], {size}, in[1], in[2], 1e-5); }});
    }
  }
  const layers::Sequences ragged = sequences({3, 1, 5}, {3, 1, 5}, {7, 3, 4000000000});
  const layers::DropoutSite site{0.3, 42, 5, 2};
  for (const auto& [keep, kept] : mask_keeps()) {
    for (const std::int64_t size : {1, 8, 37}) {
      const std::string name = std::to_string(size) + "_" + kept;
      cases.push_back(
          {"dropout_" + name,
           {random({9, size}, 5)},
           1,
           [=, keep = keep](const Tensors& in) { return layers::dropout(in[0], ragged, site, keep); },
           [=](const Tensors& in) { return in[0] * dropout_factors(site, ragged, size).to(in[0].scalar_type()); }});
      cases.push_back(
          {"dropout_add_" + name,
           {random({9, size}, 6), random({9, size}, 7)},
           2,
           [=, keep = keep](const Tensors& in) { return layers::dropout_add(in[0], in[1], ragged, site, keep); },
           [=](const Tensors& in) {
             return in[1] + in[0] * dropout_factors(site, ragged, size).to(in[0].scalar_type());
           }});
    }
  }
}

/// Every way to keep, with two heads.
struct AttentionForm {
  std::string name;
  layers::AttentionOptions options;
};

inline std::vector<AttentionForm> attention_forms() {
  std::vector<AttentionForm> forms;
  for (const bool is_causal : {false, true}) {
    const std::string mask_name = is_causal ? "causal_" : "";
    forms.push_back(
        {mask_name + "baseline", {2, is_causal, layers::AttentionKeep::kDropped, layers::MaskKeep::kBytes}});
    for (const auto& [keep, kept] : mask_keeps())
      forms.push_back({mask_name + "tempo_" + kept, {2, is_causal, layers::AttentionKeep::kProbabilities, keep}});
    forms.push_back(
        {mask_name + "flash", {2, is_causal, layers::AttentionKeep::kLogSumExp, layers::MaskKeep::kNothing}});
  }
  return forms;
}

inline void add_norm_cases(std::vector<OpCase>& cases) {
  for (const std::int64_t rows : {0, 1, 5, 130}) {
    for (const std::int64_t size : {1, 8, 37, 1024}) {
      // Gamma of both signs that is_norm_invertible lets pass.
      cases.push_back(
          {"layer_norm_kept_output_" + std::to_string(rows) + "x" + std::to_string(size),
           {random({rows, size}, 2) + 0.5, random({size}, 3).tanh() + 1.2, random({size}, 4)},
           3,
           [](const Tensors& in) { return layers::layer_norm(in[0], -in[1], in[2], 1e-5, layers::NormKeep::kOutput); },
           [size](const Tensors& in) { return at::layer_norm(in[0], {size}, -in[1], in[2], 1e-5); }});
    }
  }
  for (const std::int64_t size : {8, 37}) {
    for (const std::int64_t rows : {0, 1, 9, 130}) {
      const std::string shape = std::to_string(rows) + "x" + std::to_string(size);
      const layers::Sequences ragged = sequences({rows / 3, rows - rows / 3}, {rows / 3, rows - rows / 3}, {9, 5});
      for (const double drop_probability : {0.0, 0.3}) {
        const layers::DropoutSite site{drop_probability, 42, 5, 0};
        cases.push_back({"layer_norm_qkv_" + shape + (drop_probability > 0 ? "_dropped" : ""),
                         {random({rows, size}, 50) + 0.5, random({size}, 51), random({size}, 52),
                          random({size, size}, 53, 0.2), random({size}, 54), random({size, size}, 55, 0.2),
                          random({size}, 56), random({size, size}, 57, 0.2), random({size}, 58)},
                         9,
                         [=](const Tensors& in) {
                           const auto r = layers::layer_norm_qkv(
                               in[0], in[1], in[2], 1e-5, {in[3], in[4], in[5], in[6], in[7], in[8]}, ragged, site);
                           return at::cat({r.y, r.q, r.k * 2, r.v * 3});
                         },
                         [=](const Tensors& in) {
                           at::Tensor y = at::layer_norm(in[0], {size}, in[1], in[2], 1e-5);
                           if (site.drop_probability > 0)
                             y = y * dropout_factors(site, ragged, size).to(y.scalar_type());
                           return at::cat({y, at::linear(y, in[3], in[4]), at::linear(y, in[5], in[6]) * 2,
                                           at::linear(y, in[7], in[8]) * 3});
                         }});
      }
      cases.push_back({"layer_norm_linear_" + shape,
                       {random({rows, size}, 60) + 0.5, random({size}, 61), random({size}, 62),
                        random({13, size}, 63, 0.2), random({13}, 64)},
                       5,
                       [](const Tensors& in) {
                         const auto [y, out] = layers::layer_norm_linear(in[0], in[1], in[2], 1e-5, in[3], in[4]);
                         return at::cat({y, out}, 1);
                       },
                       [size](const Tensors& in) {
                         const at::Tensor y = at::layer_norm(in[0], {size}, in[1], in[2], 1e-5);
                         return at::cat({y, at::linear(y, in[3], in[4])}, 1);
                       }});
    }
  }
}

inline void add_product_cases(std::vector<OpCase>& cases) {
  cases.push_back({"linear",
                   {random({5, 7}, 8), random({3, 7}, 9), random({3}, 10)},
                   3,
                   [](const Tensors& in) { return layers::linear(in[0], in[1], in[2]); },
                   [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); }});
  cases.push_back({"qkv_linear",
                   {random({5, 6}, 11), random({6, 6}, 12), random({6}, 13), random({6, 6}, 14), random({6}, 15),
                    random({6, 6}, 16), random({6}, 17)},
                   7,
                   [](const Tensors& in) {
                     const auto [q, k, v] = layers::qkv_linear(in[0], {in[1], in[2], in[3], in[4], in[5], in[6]});
                     return at::cat({q, k * 2, v * 3});
                   },
                   [](const Tensors& in) {
                     return at::cat({at::linear(in[0], in[1], in[2]), at::linear(in[0], in[3], in[4]) * 2,
                                     at::linear(in[0], in[5], in[6]) * 3});
                   }});
  struct Layout {
    const char* name;
    layers::Sequences in;
  };
  const std::vector<Layout> layouts = {{"full", sequences({16, 16}, {16, 16}, {0, 1})},
                                       {"padded", sequences({10, 10, 10}, {8, 10, 1}, {4, 9, 2})},
                                       {"ragged", sequences({3, 150, 17}, {3, 150, 17}, {5, 6, 7})},
                                       {"nothing_to_attend_to", sequences({4, 4}, {0, 3}, {0, 1})}};
  for (const AttentionForm& form : attention_forms()) {
    for (const Layout& layout : layouts) {
      for (const double drop_probability : {0.0, 0.25}) {
        const layers::DropoutSite site{drop_probability, 9, 3, 11};
        const std::int64_t slots = layout.in.host_starts.back();
        const layers::AttentionOptions options = form.options;
        cases.push_back(
            {"attention_" + form.name + "_" + layout.name + (drop_probability > 0 ? "_dropped" : ""),
             {random({slots, 12}, 18), random({slots, 12}, 19), random({slots, 12}, 20)},
             3,
             [=](const Tensors& in) { return layers::attention(in[0], in[1], in[2], options, layout.in, site); },
             [=](const Tensors& in) {
               return reference_attention(in[0], in[1], in[2], 2, options.is_causal, layout.in, site);
             }});
      }
    }
  }
}

inline void add_table_cases(std::vector<OpCase>& cases) {
  const at::Tensor ids = whole({4, 0, 4, 6});
  const at::Tensor positions = whole({0, 1, 2, 0});
  const at::Tensor types = whole({0, 0, 1, 1});
  cases.push_back({"embedding_sum",
                   {random({7, 70}, 21), random({3, 70}, 22), random({2, 70}, 23), ids, positions, types},
                   3,
                   [](const Tensors& in) {
                     return layers::embedding_sum({in[0], in[1], in[2]}, in[3], in[4], in[5]);
                   },
                   [](const Tensors& in) {
                     return at::embedding(in[0], in[3]) + at::embedding(in[1], in[4]) + at::embedding(in[2], in[5]);
                   }});
  cases.push_back({"gather_rows",
                   {random({5, 9}, 24), whole({4, 0, 0, 3})},
                   1,
                   [](const Tensors& in) { return layers::gather_rows(in[0], in[1]); },
                   [](const Tensors& in) { return at::index_select(in[0], 0, in[1]); }});
  for (const std::int64_t columns : {20, 24}) {  // 24: four columns pad the vocabulary
    cases.push_back({"cross_entropy_" + std::to_string(columns),
                     {random({6, columns}, 25, 3), whole({3, -100, 19, 0, -100, 7})},
                     1,
                     [](const Tensors& in) { return layers::cross_entropy(in[0], in[1], 20, -100).loss_sum; },
                     [](const Tensors& in) {
                       return at::cross_entropy_loss(in[0].narrow(1, 0, 20), in[1], {}, at::Reduction::Sum, -100);
                     }});
  }
}

inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  add_elementwise_cases(cases);
  add_gelu_from_output_cases(cases);
  add_mlp_cases(cases);
  add_norm_cases(cases);
  add_product_cases(cases);
  add_table_cases(cases);
  return cases;
}

}  // namespace tempo::testing
