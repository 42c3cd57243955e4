#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

// scatter_add_rows gives each thread a range of columns and all rows in order: no two threads meet, and the sum's order is
// that of the rows. A range is a multiple of a cache line, so that neighbours do not share one.
constexpr std::int64_t kColumnsPerRange = 64;

template <typename T>
TEMPO_INLINE void sum_rows_loop(const T* word, const T* position, const T* token_type, std::int64_t size, T* sum) {
  for (std::int64_t i = 0; i < size; ++i) sum[i] = word[i] + token_type[i] + position[i];
}

template <typename T>
TEMPO_INLINE void add_row_loop(const T* row, std::int64_t size, T* sum) {
  for (std::int64_t i = 0; i < size; ++i) sum[i] += row[i];
}

TEMPO_VECTORISED void sum_rows(const float* word, const float* position, const float* token_type, std::int64_t size,
                               float* sum) {
  sum_rows_loop(word, position, token_type, size, sum);
}
void sum_rows(const double* word, const double* position, const double* token_type, std::int64_t size, double* sum) {
  sum_rows_loop(word, position, token_type, size, sum);
}
TEMPO_VECTORISED void add_row(const float* row, std::int64_t size, float* sum) { add_row_loop(row, size, sum); }
void add_row(const double* row, std::int64_t size, double* sum) { add_row_loop(row, size, sum); }

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
    for_element_type(grad, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const std::int64_t* rows = index.const_data_ptr<std::int64_t>();
      T* to = sum.mutable_data_ptr<T>();
      const std::int64_t num_ranges = (size + kColumnsPerRange - 1) / kColumnsPerRange;
      at::parallel_for(0, num_ranges, 1, [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t first = begin * kColumnsPerRange;
        const std::int64_t count = std::min(size, end * kColumnsPerRange) - first;
        for (std::int64_t r = 0; r < index.numel(); ++r)
          add_row(from + r * size + first, count, to + rows[r] * size + first);
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
