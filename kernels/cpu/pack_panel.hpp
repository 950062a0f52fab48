#pragma once

#include "kernels/cpu/panel_layout.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

PanelKind panel_kind(WeightType type);

/// Bytes of a panel with `cols` k.
size_t panel_bytes(PanelKind kind, size_t cols);

/// Writes panel `panel` of the matrix, all its panel_bytes.
void pack_panel(const WeightView& weights, size_t panel, std::byte* out);

}  // namespace outrider::kernels
