#include "layers/ops/dropout.h"

#include <vector>

#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"

namespace tempo::layers {
namespace {

TEMPO_VECTORISED void row_words(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position,
                                std::uint32_t example, std::uint32_t num_blocks, std::uint32_t* words) {
  const math::DropoutKey local = key;  // a copy the compiler knows `words` cannot change
  for (std::uint32_t block = 0; block < num_blocks; ++block) {
    const math::PhiloxWords four = math::dropout_words(local, block, head, position, example);
    for (int w = 0; w < 4; ++w) words[4 * block + w] = four.word[w];
  }
}

template <typename T>
TEMPO_INLINE void forward_loop(const T* x, const T* residual, const std::uint16_t* bits, std::uint32_t threshold,
                               T scale, std::int64_t size, T* y, std::uint8_t* mask) {
  for (std::int64_t i = 0; i < size; ++i) {
    const bool keep = bits[i] < threshold;
    mask[i] = keep;
    const T kept = keep ? x[i] * scale : T{0};
    y[i] = residual == nullptr ? kept : residual[i] + kept;
  }
}

template <typename T>
TEMPO_INLINE void backward_loop(const T* grad, const std::uint8_t* mask, T scale, std::int64_t size, T* grad_x) {
  for (std::int64_t i = 0; i < size; ++i) grad_x[i] = mask[i] != 0 ? grad[i] * scale : T{0};
}

#define TEMPO_DROPOUT_LOOPS(T, CLONES)                                                                            \
  CLONES void forward(const T* x, const T* residual, const std::uint16_t* bits, std::uint32_t threshold, T scale, \
                      std::int64_t size, T* y, std::uint8_t* mask) {                                              \
    residual == nullptr ? forward_loop<T>(x, nullptr, bits, threshold, scale, size, y, mask)                      \
                        : forward_loop<T>(x, residual, bits, threshold, scale, size, y, mask);                    \
  }                                                                                                               \
  CLONES void backward(const T* grad, const std::uint8_t* mask, T scale, std::int64_t size, T* grad_x) {          \
    backward_loop<T>(grad, mask, scale, size, grad_x);                                                            \
  }

TEMPO_DROPOUT_LOOPS(float, TEMPO_VECTORISED)
TEMPO_DROPOUT_LOOPS(double, )

/// The sequence that slot `row` belongs to: the last one that starts at or before it.
std::int64_t sequence_of(const std::int64_t* starts, std::int64_t num_sequences, std::int64_t row) {
  return std::upper_bound(starts, starts + num_sequences + 1, row) - starts - 1;
}

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

TwoTensors dropout_kernel(const at::Tensor& x_any, const std::optional<at::Tensor>& residual_any,
                          const at::Tensor& starts, const at::Tensor& ids, double drop_probability, std::int64_t seed,
                          std::int64_t step, std::int64_t site) {
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  const at::Tensor x = x_any.contiguous();
  const at::Tensor residual = residual_any.has_value() ? residual_any->contiguous() : at::Tensor();
  TORCH_CHECK(x.dim() == 2, "dropout: x must be [T, H], is ", x.sizes());
  TORCH_CHECK(!residual.defined() || residual.sizes() == x.sizes(), "dropout: x and the residual differ in shape");
  check_contiguous("dropout", {starts, ids});
  at::Tensor y = at::empty_like(x);
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(at::kByte));
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      const T* added = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
      const std::int64_t* starts_data = starts.const_data_ptr<std::int64_t>();
      const std::int64_t* ids_data = ids.const_data_ptr<std::int64_t>();
      T* to = y.mutable_data_ptr<T>();
      std::uint8_t* mask_data = mask.mutable_data_ptr<std::uint8_t>();
      const std::int64_t size = x.size(1);
      at::parallel_for(0, x.size(0), grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint16_t> bits((size + 7) / 8 * 8);
        std::int64_t sequence = sequence_of(starts_data, ids.size(0), begin);
        for (std::int64_t row = begin; row < end; ++row) {
          while (row >= starts_data[sequence + 1]) ++sequence;
          dropout_row_bits(key, 0, static_cast<std::uint32_t>(row - starts_data[sequence]),
                           static_cast<std::uint32_t>(ids_data[sequence]), size, bits.data());
          const std::int64_t at = row * size;
          forward(from + at, added == nullptr ? nullptr : added + at, bits.data(), key.threshold,
                  static_cast<T>(key.scale()), size, to + at, mask_data + at);
        }
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::dropout(stream, key, x.const_data_ptr<float>(),
                  residual.defined() ? residual.const_data_ptr<float>() : nullptr,
                  starts.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>(), ids.size(0),
                  y.mutable_data_ptr<float>(), mask.mutable_data_ptr<std::uint8_t>(), x.size(0), x.size(1));
  });
  return {y, mask};
}

at::Tensor dropout_backward_kernel(const at::Tensor& grad_any, const at::Tensor& mask, double drop_probability) {
  check_contiguous("dropout_backward", {mask});
  const at::Tensor grad = grad_any.contiguous();
  at::Tensor grad_x = at::empty_like(grad);
  const auto cpu = [&] {
    for_element_type(grad, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T scale = static_cast<T>(dropout_key({drop_probability, 0, 0, 0}).scale());
      const T* from = grad.const_data_ptr<T>();
      const std::uint8_t* mask_data = mask.const_data_ptr<std::uint8_t>();
      T* to = grad_x.mutable_data_ptr<T>();
      at::parallel_for(0, grad.numel(), kGrainElements, [&](std::int64_t begin, std::int64_t end) {
        backward(from + begin, mask_data + begin, scale, end - begin, to + begin);
      });
    });
  };
  on_device(grad, cpu, [&](void* stream) {
    cuda::dropout_backward(stream, grad.const_data_ptr<float>(), mask.const_data_ptr<std::uint8_t>(),
                           dropout_key({drop_probability, 0, 0, 0}).scale(), grad_x.mutable_data_ptr<float>(),
                           grad.numel());
  });
  return grad_x;
}

struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            const Sequences& sequences, const DropoutSite& site) {
    auto [y, mask] = TEMPO_CALL(dropout, x, residual, sequences.starts, sequences.ids, site.drop_probability,
                                static_cast<std::int64_t>(site.seed), site.step, site.site);
    context->save_for_backward({mask});
    context->saved_data["drop_probability"] = site.drop_probability;
    context->saved_data["has_residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("dropout");
    const at::Tensor mask = context->get_saved_variables()[0];
    at::Tensor grad_x =
        TEMPO_CALL(dropout_backward, grads[0], mask, context->saved_data["drop_probability"].toDouble());
    return {grad_x, context->saved_data["has_residual"].toBool() ? grads[0] : at::Tensor(), {}, {}};
  }
};

TEMPO_REGISTER(dropout)
TEMPO_REGISTER(dropout_backward)

}  // namespace

math::DropoutKey dropout_key(const DropoutSite& site) {
  TORCH_CHECK(site.drop_probability >= 0 && site.drop_probability < 1, "dropout: probability ", site.drop_probability,
              " is not in [0, 1)");
  TORCH_CHECK(site.site >= 0 && site.site < math::kMaxDropoutSites, "dropout: site ", site.site, " is not below ",
              math::kMaxDropoutSites);
  return {site.seed, static_cast<std::uint32_t>(site.step), static_cast<std::uint32_t>(site.site),
          math::dropout_threshold(site.drop_probability)};
}

void dropout_row_bits(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position, std::uint32_t example,
                      std::int64_t size, std::uint16_t* bits) {
  // On a little-endian machine the words lie in memory as the lanes are numbered: low half first.
  row_words(key, head, position, example, static_cast<std::uint32_t>((size + 7) / 8),
            reinterpret_cast<std::uint32_t*>(bits));
}

at::Tensor dropout(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site) {
  if (site.drop_probability == 0) return x;
  return DropoutFunction::apply(x, std::nullopt, sequences, site);
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Sequences& sequences,
                       const DropoutSite& site) {
  if (site.drop_probability == 0) return at::add(residual, x);
  return DropoutFunction::apply(x, residual, sequences, site);
}

}  // namespace tempo::layers
