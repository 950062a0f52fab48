#pragma once

#include "kernels/cpu/code_matmul.inl.hpp"
#include "kernels/cpu/float_matmul.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

static void matmul(const MatmulArgs& a, Range rows, Range panels) {
  switch (a.kind) {
    case PanelKind::f32:
      return float_matmul<PanelKind::f32>(a, rows, panels);
    case PanelKind::f16:
      return float_matmul<PanelKind::f16>(a, rows, panels);
    case PanelKind::bf16:
      return float_matmul<PanelKind::bf16>(a, rows, panels);
    default:
      with_coded_kind(a.kind, [&](auto k) { code_matmul<decltype(k)::kind>(a, rows, panels); });
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
