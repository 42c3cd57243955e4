// What the operators that drop elements share: the key of a site and its way through the graph, dropout in place.
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include "layers/math/dropout.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"

namespace tempo::layers {

/// The key of a site; checks probability and site.
math::DropoutKey dropout_key(const DropoutSite& site);

/// Throws where a coordinate of dropout has no room in its counter: more slots in a sequence, channels (or keys) or heads than that
/// would repeat decisions.
void check_dropout_fits(const Sequences& sequences, std::int64_t channels, std::int64_t heads);

/// Stores a site in a node of the graph, and reads it there.
void save_site(const DropoutSite& site, AutogradContext& context);
DropoutSite saved_site(AutogradContext& context);

/// x [T, H], contiguous, becomes dropout(x) in place, and nothing is kept: the decisions can be drawn again. So this is the
/// backward pass as well. It leaves x as it is where the probability is 0. Not differentiable.
void drop_rows(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site);

}  // namespace tempo::layers
