#include "layers/ops/dropout.h"

#include <algorithm>
#include <vector>

#include "layers/ops/bit_mask.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/dropout_bits.h"
#include "layers/ops/launches.h"

namespace tempo::layers {
namespace {

using math::Compute;

/// `residual` may be null.
template <typename T>
TEMPO_INLINE void forward_loop(const T* x, const T* residual, const std::uint16_t* bits, std::uint32_t threshold,
                               Compute<T> scale, std::int64_t size, T* y) {
  for (std::int64_t i = 0; i < size; ++i) {
    const Compute<T> scaled = x[i] * scale;
    const Compute<T> kept = bits[i] < threshold ? scaled : Compute<T>{0};
    y[i] = residual == nullptr ? kept : residual[i] + kept;
  }
}

template <typename T>
TEMPO_INLINE void backward_loop(const T* grad, const std::uint8_t* mask, Compute<T> scale, std::int64_t size,
                                T* grad_x) {
  for (std::int64_t i = 0; i < size; ++i) {
    const Compute<T> scaled = grad[i] * scale;
    grad_x[i] = mask[i] != 0 ? scaled : Compute<T>{0};
  }
}

#define TEMPO_DROPOUT_LOOPS(T, CLONES)                                                                            \
  CLONES void forward(const T* x, const T* residual, const std::uint16_t* bits, std::uint32_t threshold,          \
                      Compute<T> scale, std::int64_t size, T* y) {                                                \
    residual == nullptr ? forward_loop<T>(x, nullptr, bits, threshold, scale, size, y)                            \
                        : forward_loop<T>(x, residual, bits, threshold, scale, size, y);                          \
  }                                                                                                               \
  CLONES void backward(const T* grad, const std::uint8_t* mask, Compute<T> scale, std::int64_t size, T* grad_x) { \
    backward_loop<T>(grad, mask, scale, size, grad_x);                                                            \
  }

TEMPO_DROPOUT_LOOPS(float, TEMPO_VECTORISED)
TEMPO_DROPOUT_LOOPS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_DROPOUT_LOOPS(at::Half, TEMPO_VECTORISED)
TEMPO_DROPOUT_LOOPS(double, )

/// The sequence that slot `row` belongs to: the last one that starts at or before it.
std::int64_t sequence_of(const std::int64_t* starts, std::int64_t num_sequences, std::int64_t row) {
  return std::upper_bound(starts, starts + num_sequences + 1, row) - starts - 1;
}

/// Of a [T, H] tensor; undefined where nothing is kept.
at::Tensor empty_mask(const at::Tensor& x, MaskKeep keep) {
  if (keep == MaskKeep::kNothing) return {};
  const std::int64_t row_bytes = keep == MaskKeep::kBytes ? x.size(1) : mask_bytes(x.size(1));
  return at::empty({x.size(0), row_bytes}, x.options().dtype(at::kByte));
}

/// y = dropout(x), or residual + that; y may be x. `residual` may be undefined, and so may `mask`.
void apply_dropout(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& starts, const at::Tensor& ids,
                   const math::DropoutKey& key, MaskKeep keep, const at::Tensor& y, const at::Tensor& mask) {
  check_contiguous("dropout", {starts, ids});
  std::uint8_t* mask_data = x.is_meta() || !mask.defined() ? nullptr : mask.mutable_data_ptr<std::uint8_t>();
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      const T* added = residual.defined() ? residual.const_data_ptr<T>() : nullptr;
      const std::int64_t* starts_data = starts.const_data_ptr<std::int64_t>();
      const std::int64_t* ids_data = ids.const_data_ptr<std::int64_t>();
      T* to = y.mutable_data_ptr<T>();
      const std::int64_t size = x.size(1);
      at::parallel_for(0, x.size(0), grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint16_t> bits(room_for_bits(size));
        std::vector<std::uint8_t> flags(keep == MaskKeep::kBits ? size + 7 : 0);
        std::int64_t sequence = sequence_of(starts_data, ids.size(0), begin);
        for (std::int64_t row = begin; row < end; ++row) {
          while (row >= starts_data[sequence + 1]) ++sequence;
          dropout_row_bits(key, 0, static_cast<std::uint32_t>(row - starts_data[sequence]),
                           static_cast<std::uint32_t>(ids_data[sequence]), size, bits.data());
          const std::int64_t at = row * size;
          forward(from + at, added == nullptr ? nullptr : added + at, bits.data(), key.threshold,
                  static_cast<Compute<T>>(key.scale()), size, to + at);
          if (keep == MaskKeep::kBytes) write_kept(bits.data(), key.threshold, size, mask_data + at);
          if (keep != MaskKeep::kBits) continue;
          write_kept(bits.data(), key.threshold, size, flags.data());
          pack_mask(flags.data(), size, mask_data + row * mask_bytes(size));
        }
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::dropout(stream, key, x.const_data_ptr<float>(),
                  residual.defined() ? residual.const_data_ptr<float>() : nullptr,
                  starts.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>(), ids.size(0),
                  y.mutable_data_ptr<float>(), mask_data, keep == MaskKeep::kBits, x.size(0), x.size(1));
  });
}

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

TwoTensors dropout_kernel(const at::Tensor& x_any, const std::optional<at::Tensor>& residual_any,
                          const at::Tensor& starts, const at::Tensor& ids, double drop_probability, std::int64_t seed,
                          std::int64_t step, std::int64_t site, std::int64_t keep) {
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  const at::Tensor x = x_any.contiguous();
  const at::Tensor residual = residual_any.has_value() ? residual_any->contiguous() : at::Tensor();
  TORCH_CHECK(x.dim() == 2, "dropout: x must be [T, H], is ", x.sizes());
  TORCH_CHECK(!residual.defined() || residual.sizes() == x.sizes(), "dropout: x and the residual differ in shape");
  at::Tensor y = at::empty_like(x);
  at::Tensor mask = empty_mask(x, MaskKeep{keep});
  apply_dropout(x, residual, starts, ids, key, MaskKeep{keep}, y, mask);
  return {y, mask};
}

void drop_rows__kernel(const at::Tensor& x, const at::Tensor& starts, const at::Tensor& ids, double drop_probability,
                       std::int64_t seed, std::int64_t step, std::int64_t site) {
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  check_contiguous("drop_rows", {x});
  apply_dropout(x, {}, starts, ids, key, MaskKeep::kNothing, x, {});
}

/// From a mask that was kept.
at::Tensor dropout_backward_kernel(const at::Tensor& grad_any, const at::Tensor& mask, double drop_probability,
                                   std::int64_t keep_number) {
  check_contiguous("dropout_backward", {mask});
  const at::Tensor grad = grad_any.contiguous();
  const bool is_packed = static_cast<MaskKeep>(keep_number) == MaskKeep::kBits;
  const float scale = dropout_key({drop_probability, 0, 0, 0}).scale();
  at::Tensor grad_x = at::empty_like(grad);
  const auto cpu = [&] {
    for_element_type(grad, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const std::uint8_t* mask_data = mask.const_data_ptr<std::uint8_t>();
      T* to = grad_x.mutable_data_ptr<T>();
      const std::int64_t size = grad.size(1);
      at::parallel_for(0, grad.size(0), grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::uint8_t> flags(is_packed ? size + 7 : 0);
        for (std::int64_t row = begin; row < end; ++row) {
          const std::uint8_t* of_row = mask_data + row * size;
          if (is_packed) {
            unpack_mask(mask_data + row * mask_bytes(size), size, flags.data());
            of_row = flags.data();
          }
          backward(from + row * size, of_row, static_cast<Compute<T>>(scale), size, to + row * size);
        }
      });
    });
  };
  on_device(grad, cpu, [&](void* stream) {
    cuda::dropout_backward(stream, grad.const_data_ptr<float>(), mask.const_data_ptr<std::uint8_t>(), is_packed, scale,
                           grad_x.mutable_data_ptr<float>(), grad.size(0), grad.size(1));
  });
  return grad_x;
}

TwoTensors call_dropout(const at::Tensor& x, const std::optional<at::Tensor>& residual, const at::Tensor& starts,
                        const at::Tensor& ids, const DropoutSite& site, MaskKeep keep) {
  return TEMPO_CALL(dropout, x, residual, starts, ids, site.drop_probability, static_cast<std::int64_t>(site.seed),
                    site.step, site.site, static_cast<std::int64_t>(keep));
}

struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            const Sequences& sequences, const DropoutSite& site, MaskKeep keep) {
    auto [y, mask] = call_dropout(x, residual, sequences.starts, sequences.ids, site, keep);
    // The batch has starts and ids in any case.
    if (keep == MaskKeep::kNothing) {
      context->save_for_backward({sequences.starts, sequences.ids});
    } else {
      context->save_for_backward({mask});
    }
    context->saved_data["keep"] = static_cast<std::int64_t>(keep);
    save_site(site, *context);
    context->saved_data["has_residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("dropout");
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const std::int64_t keep = data["keep"].toInt();
    const DropoutSite site = saved_site(*context);
    at::Tensor grad_x;
    if (static_cast<MaskKeep>(keep) == MaskKeep::kNothing) {
      // What the forward pass does to x is what the gradient needs.
      grad_x = std::get<0>(call_dropout(grads[0], std::nullopt, saved[0], saved[1], site, MaskKeep::kNothing));
    } else {
      grad_x = TEMPO_CALL(dropout_backward, grads[0], saved[0], site.drop_probability, keep);
    }
    return {grad_x, data["has_residual"].toBool() ? grads[0] : at::Tensor(), {}, {}, {}};
  }
};

TEMPO_REGISTER(dropout)
TEMPO_REGISTER(dropout_backward)
TEMPO_REGISTER(drop_rows_)

}  // namespace

math::DropoutKey dropout_key(const DropoutSite& site) {
  TORCH_CHECK(site.drop_probability >= 0 && site.drop_probability < 1, "dropout: probability ", site.drop_probability,
              " is not in [0, 1)");
  TORCH_CHECK(site.site >= 0 && site.site < math::kMaxDropoutSites, "dropout: site ", site.site, " is not below ",
              math::kMaxDropoutSites);
  return {site.seed, static_cast<std::uint32_t>(site.step), static_cast<std::uint32_t>(site.site),
          math::dropout_threshold(site.drop_probability)};
}

void check_dropout_fits(const Sequences& sequences, std::int64_t channels, std::int64_t heads) {
  std::int64_t slots = 0;
  for (std::size_t b = 0; b + 1 < sequences.host_starts.size(); ++b)
    slots = std::max(slots, sequences.host_starts[b + 1] - sequences.host_starts[b]);
  TORCH_CHECK(slots <= math::kMaxDropoutPositions, "dropout: a sequence of ", slots, " slots, more than ",
              math::kMaxDropoutPositions);
  TORCH_CHECK(channels <= math::kDropoutBlock * std::int64_t{math::kMaxDropoutBlocks}, "dropout: rows of ", channels,
              " elements, more than ", math::kDropoutBlock * std::int64_t{math::kMaxDropoutBlocks});
  TORCH_CHECK(heads <= math::kMaxDropoutHeads, "dropout: ", heads, " heads, more than ", math::kMaxDropoutHeads);
}

void save_site(const DropoutSite& site, AutogradContext& context) {
  context.saved_data["drop_probability"] = site.drop_probability;
  context.saved_data["seed"] = static_cast<std::int64_t>(site.seed);
  context.saved_data["step"] = site.step;
  context.saved_data["site"] = site.site;
}

DropoutSite saved_site(AutogradContext& context) {
  auto& data = context.saved_data;
  return {data["drop_probability"].toDouble(), static_cast<std::uint64_t>(data["seed"].toInt()), data["step"].toInt(),
          data["site"].toInt()};
}

void drop_rows(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site) {
  if (site.drop_probability == 0) return;
  check_dropout_fits(sequences, x.size(1), 1);
  TEMPO_CALL(drop_rows_, x, sequences.starts, sequences.ids, site.drop_probability,
             static_cast<std::int64_t>(site.seed), site.step, site.site);
}

at::Tensor dropout(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site, MaskKeep keep) {
  if (site.drop_probability == 0) return x;
  check_dropout_fits(sequences, x.size(1), 1);
  return DropoutFunction::apply(x, std::nullopt, sequences, site, keep);
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Sequences& sequences,
                       const DropoutSite& site, MaskKeep keep) {
  if (site.drop_probability == 0) return at::add(residual, x);
  check_dropout_fits(sequences, x.size(1), 1);
  return DropoutFunction::apply(x, residual, sequences, site, keep);
}

}  // namespace tempo::layers
