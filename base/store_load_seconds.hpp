#pragma once

#include <array>

namespace outrider {

/// Upper ends, in seconds, of the classes by which loads of the KV store are counted; what takes
/// longer than the last is a class of its own.
inline constexpr std::array k_store_load_seconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                    0.25,  0.5,    1.0,   2.5,  5.0,   10.0};

}  // namespace outrider
