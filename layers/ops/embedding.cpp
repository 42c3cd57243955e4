#include <numeric>
#include <vector>

#include "layers/math/scalar.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

using math::Compute;

// scatter_add_rows gives each thread ranges of columns: no two threads meet. A range is a multiple of a cache line in every
// type, so that neighbours do not share one.
constexpr std::int64_t kColumnsPerRange = 64;

template <typename T>
TEMPO_INLINE void sum_rows_loop(const T* word, const T* position, const T* token_type, std::int64_t size, T* sum) {
  using C = Compute<T>;
  for (std::int64_t i = 0; i < size; ++i) sum[i] = C{word[i]} + C{token_type[i]} + C{position[i]};
}

/// sum = rows which[0], which[1], .. of `rows`, whose columns these are, added in that order and rounded once.
template <typename T>
TEMPO_INLINE void add_rows_loop(const T* rows, std::int64_t stride, const std::int64_t* which, std::int64_t count,
                                std::int64_t columns, T* sum) {
  Compute<T> total[kColumnsPerRange] = {};
  for (std::int64_t r = 0; r < count; ++r) {
    const T* row = rows + which[r] * stride;
    for (std::int64_t i = 0; i < columns; ++i) total[i] += Compute<T>{row[i]};
  }
  for (std::int64_t i = 0; i < columns; ++i) sum[i] = total[i];
}

#define TEMPO_EMBEDDING_LOOPS(T, CLONES)                                                                   \
  CLONES void sum_rows(const T* word, const T* position, const T* token_type, std::int64_t size, T* sum) { \
    sum_rows_loop(word, position, token_type, size, sum);                                                  \
  }                                                                                                        \
  CLONES void add_rows(const T* rows, std::int64_t stride, const std::int64_t* which, std::int64_t count,  \
                       std::int64_t columns, T* sum) {                                                     \
    columns == kColumnsPerRange ? add_rows_loop(rows, stride, which, count, kColumnsPerRange, sum)         \
                                : add_rows_loop(rows, stride, which, count, columns, sum);                 \
  }

TEMPO_EMBEDDING_LOOPS(float, TEMPO_VECTORISED)
TEMPO_EMBEDDING_LOOPS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_EMBEDDING_LOOPS(at::Half, TEMPO_VECTORISED)
TEMPO_EMBEDDING_LOOPS(double, )

/// The numbers 0, 1, .. of an index, grouped by its values and in order within each: group v is at [starts[v], starts[v + 1]).
struct Groups {
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> members;

  Groups(const std::int64_t* index, std::int64_t size, std::int64_t num_values)
      : starts(num_values + 1), members(size) {
    for (std::int64_t i = 0; i < size; ++i) ++starts[index[i] + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    std::vector<std::int64_t> next(starts.begin(), starts.end() - 1);
    for (std::int64_t i = 0; i < size; ++i) members[next[index[i]]++] = i;
  }
};

at::Tensor embedding_sum_kernel(const at::Tensor& word, const at::Tensor& position, const at::Tensor& token_type,
                                const at::Tensor& token_ids, const at::Tensor& position_ids,
                                const at::Tensor& token_types) {
  TORCH_CHECK(word.dim() == 2 && position.dim() == 2 && token_type.dim() == 2 && position.size(1) == word.size(1) &&
                  token_type.size(1) == word.size(1),
              "embedding_sum: tables ", word.sizes(), ", ", position.sizes(), ", ", token_type.sizes(), " do not fit");
  TORCH_CHECK(token_ids.sizes() == position_ids.sizes() && token_ids.sizes() == token_types.sizes(),
              "embedding_sum: the three id tensors differ in shape");
  check_contiguous("embedding_sum", {word, position, token_type, token_ids, position_ids, token_types});
  const std::int64_t rows = token_ids.numel();
  const std::int64_t size = word.size(1);
  at::Tensor sum = at::empty({rows, size}, word.options());
  const auto cpu = [&] {
    for_element_type(word, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* word_data = word.const_data_ptr<T>();
      const T* position_data = position.const_data_ptr<T>();
      const T* type_data = token_type.const_data_ptr<T>();
      const std::int64_t* words = token_ids.const_data_ptr<std::int64_t>();
      const std::int64_t* positions = position_ids.const_data_ptr<std::int64_t>();
      const std::int64_t* types = token_types.const_data_ptr<std::int64_t>();
      T* to = sum.mutable_data_ptr<T>();
      at::parallel_for(0, rows, grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          sum_rows(word_data + words[r] * size, position_data + positions[r] * size, type_data + types[r] * size, size,
                   to + r * size);
        }
      });
    });
  };
  on_device(sum, cpu, [&](void* stream) {
    cuda::embedding_sum(stream, word.const_data_ptr<float>(), position.const_data_ptr<float>(),
                        token_type.const_data_ptr<float>(), token_ids.const_data_ptr<std::int64_t>(),
                        position_ids.const_data_ptr<std::int64_t>(), token_types.const_data_ptr<std::int64_t>(),
                        sum.mutable_data_ptr<float>(), rows, size);
  });
  return sum;
}

at::Tensor scatter_add_rows_kernel(const at::Tensor& grad_any, const at::Tensor& index, std::int64_t num_rows) {
  check_contiguous("scatter_add_rows", {index});
  const at::Tensor grad = grad_any.contiguous();
  const std::int64_t size = grad.size(1);
  at::Tensor sum = at::zeros({num_rows, size}, grad.options());
  const auto cpu = [&] {
    const Groups groups(index.const_data_ptr<std::int64_t>(), index.numel(), num_rows);
    for_element_type(grad, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      T* to = sum.mutable_data_ptr<T>();
      const std::int64_t num_ranges = (size + kColumnsPerRange - 1) / kColumnsPerRange;
      at::parallel_for(0, num_ranges, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < num_rows; ++row) {
          const std::int64_t count = groups.starts[row + 1] - groups.starts[row];
          if (count == 0) continue;
          for (std::int64_t first = begin * kColumnsPerRange; first < std::min(size, end * kColumnsPerRange);
               first += kColumnsPerRange) {
            add_rows(from + first, size, groups.members.data() + groups.starts[row], count,
                     std::min(kColumnsPerRange, size - first), to + row * size + first);
          }
        }
      });
    });
  };
  on_device(grad, cpu, [&](void* stream) {
    cuda::scatter_add_rows(stream, grad.const_data_ptr<float>(), index.const_data_ptr<std::int64_t>(),
                           sum.mutable_data_ptr<float>(), index.numel(), size);
  });
  return sum;
}

at::Tensor gather_rows_kernel(const at::Tensor& x_any, const at::Tensor& index) {
  const at::Tensor x = x_any.contiguous();
  TORCH_CHECK(x.dim() == 2 && index.dim() == 1, "gather_rows: x ", x.sizes(), " and index ", index.sizes(),
              " do not fit");
  check_contiguous("gather_rows", {index});
  const std::int64_t size = x.size(1);
  at::Tensor rows = at::empty({index.numel(), size}, x.options());
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      const std::int64_t* which = index.const_data_ptr<std::int64_t>();
      T* to = rows.mutable_data_ptr<T>();
      for (std::int64_t r = 0; r < index.numel(); ++r) std::copy_n(from + which[r] * size, size, to + r * size);
    });
  };
  on_device(rows, cpu, [&](void* stream) {
    cuda::gather_rows(stream, x.const_data_ptr<float>(), index.const_data_ptr<std::int64_t>(),
                      rows.mutable_data_ptr<float>(), index.numel(), size);
  });
  return rows;
}

struct EmbeddingSumFunction : Function<EmbeddingSumFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& word, const at::Tensor& position,
                            const at::Tensor& token_type, const at::Tensor& token_ids, const at::Tensor& position_ids,
                            const at::Tensor& token_types) {
    context->save_for_backward({token_ids, position_ids, token_types});
    context->saved_data["rows"] = std::vector<std::int64_t>{word.size(0), position.size(0), token_type.size(0)};
    return TEMPO_CALL(embedding_sum, word, position, token_type, token_ids, position_ids, token_types);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("embedding_sum");
    const variable_list ids = context->get_saved_variables();
    const std::vector<std::int64_t> rows = context->saved_data["rows"].toIntVector();
    variable_list result;
    for (std::size_t table = 0; table < ids.size(); ++table) {
      result.push_back(TEMPO_CALL(scatter_add_rows, grads[0], ids[table], rows[table]));
    }
    result.resize(6);
    return result;
  }
};

struct GatherRowsFunction : Function<GatherRowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& index) {
    context->save_for_backward({index});
    context->saved_data["rows"] = x.size(0);
    return TEMPO_CALL(gather_rows, x, index);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("gather_rows");
    const at::Tensor index = context->get_saved_variables()[0];
    return {TEMPO_CALL(scatter_add_rows, grads[0], index, context->saved_data["rows"].toInt()), {}};
  }
};

TEMPO_REGISTER(embedding_sum)
TEMPO_REGISTER(scatter_add_rows)
TEMPO_REGISTER(gather_rows)

}  // namespace

at::Tensor embedding_sum(const EmbeddingTables& tables, const at::Tensor& token_ids, const at::Tensor& position_ids,
                         const at::Tensor& token_types) {
  return EmbeddingSumFunction::apply(tables.word, tables.position, tables.token_type, token_ids, position_ids,
                                     token_types);
}

at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index) { return GatherRowsFunction::apply(x, index); }

}  // namespace tempo::layers
