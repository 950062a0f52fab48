#include "tools/kv_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/system.hpp"
#include "base/utf8.hpp"
#include "tools/server_json.hpp"
#include "tools/tenant_quotas.hpp"

namespace outrider::tools {
namespace {

constexpr size_t k_secret_bytes = 32;
/// Number of the account of all tenants beyond limits::kv_tenants_max.
constexpr uint64_t k_shared_account = 0;

Error cannot(const std::string& what, const std::string& path) {
  return Error{ErrorCode::invalid_argument,
               "store-dir: " + what + " " + path + ": " + std::strerror(errno), "store-dir"};
}

/// By a rename, so that a kill leaves no half of it; the first of two processes wins.
Result<void> write_secret(const std::string& path, const std::string& text) {
  const std::string draft = path + "." + std::to_string(::getpid());
  ::unlink(draft.c_str());  // of a process with this id that was killed
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return cannot("cannot write", draft);
  const bool written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file) == 0;
  ::close(file);
  const bool linked = written && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const Error error = cannot("cannot write", path);
  ::unlink(draft.c_str());
  if (!linked) return error;
  return {};
}

Result<void> make_secret(const std::string& path) {
  std::vector<uint8_t> bytes;
  while (bytes.size() < k_secret_bytes) bytes.push_back(static_cast<uint8_t>(random_bits() >> 32));
  return write_secret(path, to_hex(bytes) + "\n");
}

/// Reasons whose count is not zero.
template <class Reason>
nlohmann::ordered_json reasons(const kvstore::Counts<Reason>& counts) {
  auto out = nlohmann::ordered_json::object();
  for (uint8_t i = 0; i < static_cast<uint8_t>(Reason::count_); ++i) {
    const auto reason = static_cast<Reason>(i);
    if (counts[reason] != 0) out[std::string(kvstore::to_string(reason))] = counts[reason];
  }
  return out;
}

template <class Reason>
void count_reasons(const kvstore::Counts<Reason>& counts, const LabelledCounter& counter,
                   Reason first = Reason{}) {
  for (auto i = static_cast<uint8_t>(first); i < static_cast<uint8_t>(Reason::count_); ++i) {
    const auto reason = static_cast<Reason>(i);
    raise_to(counter.of(kvstore::to_string(reason)), static_cast<double>(counts[reason]));
  }
}

nlohmann::ordered_json use_json(const kvstore::TenantUse& tenant) {
  return {{"blocks", tenant.rows},
          {"bytes", tenant.bytes},
          {"pinned_bytes", tenant.pinned_bytes},
          {"dead_bytes", tenant.dead_bytes},
          {"over_quota_blocks", tenant.over_quota}};
}

nlohmann::ordered_json tenant_json(const kvstore::TenantUse& tenant) {
  nlohmann::ordered_json json = {{"quota_bytes", tenant.quota_bytes}};
  json.update(use_json(tenant));
  return json;
}

/// No tenant of a key is called like the number: lines of a key file that begin so are comments.
std::string name_of(const kvstore::TenantUse& tenant) {
  if (tenant.name) return *tenant.name;
  if (tenant.stored_name) return utf8_replace_invalid(*tenant.stored_name);
  char number[24];
  std::snprintf(number, sizeof(number), "#%llx", static_cast<unsigned long long>(tenant.tenant));
  return number;
}

/// Those that have a quota of their own or blocks, most bytes first; all others together.
void describe_all_tenants(std::vector<kvstore::TenantUse> tenants, nlohmann::ordered_json& out) {
  std::stable_sort(tenants.begin(), tenants.end(), [](const auto& a, const auto& b) {
    if (a.name.has_value() != b.name.has_value()) return a.name.has_value();
    return a.bytes > b.bytes;
  });
  kvstore::TenantUse others;
  uint64_t count = 0;
  size_t without_quota = 0;
  for (const kvstore::TenantUse& tenant : tenants) {
    const bool is_one = tenant.rows != 0 && tenant.tenant != k_shared_account;
    const bool is_shown = tenant.name || (is_one && without_quota++ < limits::kv_tenants_shown_max);
    if (is_shown) {
      out["tenants"][name_of(tenant)] = tenant_json(tenant);
      continue;
    }
    ++count;
    others.rows += tenant.rows;
    others.bytes += tenant.bytes;
    others.pinned_bytes += tenant.pinned_bytes;
    others.dead_bytes += tenant.dead_bytes;
    others.over_quota += tenant.over_quota;
  }
  auto& rest = out["other_tenants"] = {{"tenants", count}};
  rest.update(use_json(others));
}

void describe_tenants(const std::vector<kvstore::TenantUse>& tenants, const gateway::Viewer& viewer,
                      nlohmann::ordered_json& out) {
  out["tenants"] = nlohmann::ordered_json::object();
  if (viewer.sees_all) return describe_all_tenants(tenants, out);
  if (viewer.tenant.empty()) return;
  const uint64_t own = kvstore::tenant_number(viewer.tenant);
  for (const kvstore::TenantUse& tenant : tenants) {
    if (tenant.tenant == own) out["tenants"][viewer.tenant] = tenant_json(tenant);
  }
}

}  // namespace

Result<std::optional<kvstore::ColdStoreOptions>> store_options(const Settings& settings) {
  using Optional = std::optional<kvstore::ColdStoreOptions>;
  if (settings.text("store-dir").empty()) return Optional();
  if (settings.text("prefix-caching") == "off") {
    return fail(ErrorCode::invalid_argument,
                "store-dir: blocks are kept by content, which prefix-caching off forgoes",
                "store-dir");
  }
  kvstore::ColdStoreOptions options;
  options.directory = settings.text("store-dir");
  options.cap_bytes = settings.count("store-cap-mb") << 20;
  options.default_quota_bytes = settings.count("store-quota-mb") << 20;
  std::map<std::string, uint64_t> quotas;
  OUTRIDER_ASSIGN(quotas, parse_tenant_quotas(settings.text("store-tenant-quota-mb")));
  for (const auto& [tenant, mb] : quotas) options.quota_bytes[tenant] = mb << 20;
  options.write_bytes_per_second = settings.count("store-write-mb-s") << 20;
  return Optional(std::move(options));
}

std::string own_secret_path(const std::string& directory) {
  return directory + "/cluster-secret";
}

bool has_own_secret(const std::string& directory) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(own_secret_path(directory), ignored);
  return std::filesystem::exists(status);
}

Result<std::string> secret_file(const std::string& directory) {
  std::error_code error;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(directory, error)) &&
      !std::filesystem::exists(directory, error)) {
    return fail(ErrorCode::invalid_argument,
                "store-dir: \"" + directory + "\" leads nowhere: is its disk mounted?",
                "store-dir");
  }
  std::filesystem::create_directories(directory, error);
  if (error) {
    errno = error.value();
    return cannot("cannot make", directory);
  }
  const std::string path = own_secret_path(directory);
  if (!has_own_secret(directory)) OUTRIDER_TRY(make_secret(path));
  return path;
}

void keep_own_secret(kvstore::ColdStoreOptions& store, const std::string& secret) {
  store.restore = [directory = store.directory, secret] {
    if (has_own_secret(directory)) return;
    std::ignore = write_secret(own_secret_path(directory), secret + "\n");
  };
}

/// RocksDB's own lock is one of fcntl, which can be asked for its owner.
pid_t store_user(const std::string& directory) {
  constexpr int k_how = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int file = ::open((directory + "/db/LOCK").c_str(), k_how);
  if (file < 0) return 0;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool asked = ::fcntl(file, F_GETLK, &lock) == 0;
  ::close(file);
  if (!asked || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid > 0 ? lock.l_pid : -1;
}

nlohmann::ordered_json describe_store(const kvstore::ColdStats& stats,
                                      const gateway::Viewer& viewer) {
  const kvstore::ColdCounters& c = stats.counters;
  nlohmann::ordered_json out = {{"outage", kvstore::to_string(stats.outage)},
                                {"outage_text", viewer.sees_all ? stats.outage_text : ""},
                                {"store", stats.store_uuid},
                                {"blocks", stats.rows},
                                {"bytes", stats.bytes},
                                {"pinned_bytes", stats.pinned_bytes},
                                {"refused_pins", c.refused_pins},
                                {"files", stats.files},
                                {"file_bytes", stats.file_bytes},
                                {"deleted_files", stats.deleted_files},
                                {"queued_bytes", stats.queued_bytes},
                                {"loads_waiting", stats.loads_waiting},
                                {"read_mb_per_s", rounded(stats.speed.bytes_per_second / 1e6)},
                                {"read_latency_ms", rounded(stats.speed.latency_s * 1e3)},
                                {"loaded_blocks", c.loaded_blocks},
                                {"loaded_bytes", c.loaded_bytes},
                                {"stored_blocks", c.stored_blocks},
                                {"stored_bytes", c.stored_bytes},
                                {"payload_written_bytes", c.payload_written_bytes},
                                {"salvaged", c.salvaged},
                                {"quarantined", c.quarantined},
                                {"unclean_starts", c.unclean_starts},
                                {"loads", reasons(c.loads)},
                                {"skipped", reasons(c.skipped)},
                                {"removed", reasons(c.removed)},
                                {"outages", reasons(c.outages)}};
  describe_tenants(stats.tenants, viewer, out);
  return out;
}

void update_store_metrics(const kvstore::ColdStats& stats, StoreMetrics& metrics) {
  const kvstore::ColdCounters& c = stats.counters;
  metrics.available.Set(stats.outage == kvstore::Outage::none ? 1 : 0);
  metrics.blocks.Set(static_cast<double>(stats.rows));
  metrics.bytes.Set(static_cast<double>(stats.bytes));
  metrics.pinned_bytes.Set(static_cast<double>(stats.pinned_bytes));
  metrics.file_bytes.Set(static_cast<double>(stats.file_bytes));
  metrics.queued_bytes.Set(static_cast<double>(stats.queued_bytes));
  metrics.loads_waiting.Set(stats.loads_waiting);
  raise_to(metrics.loaded_bytes, static_cast<double>(c.loaded_bytes));
  raise_to(metrics.stored_bytes, static_cast<double>(c.stored_bytes));
  raise_to(metrics.payload_written_bytes, static_cast<double>(c.payload_written_bytes));
  raise_to(metrics.salvaged, static_cast<double>(c.salvaged));
  raise_to(metrics.quarantined, static_cast<double>(c.quarantined));
  raise_to(metrics.refused_pins, static_cast<double>(c.refused_pins));
  raise_to(metrics.load_duration_seconds, c.load_times, static_cast<double>(c.load_ns) * 1e-9);
  count_reasons(c.loads, metrics.loads);
  count_reasons(c.skipped, metrics.skipped);
  count_reasons(c.removed, metrics.removed);
  count_reasons(c.outages, metrics.outages, kvstore::Outage::read_only);
  for (const kvstore::TenantUse& tenant : stats.tenants) {
    if (!tenant.name) continue;  // names from keys and clients are no closed set
    metrics.tenant_bytes.of(*tenant.name).Set(static_cast<double>(tenant.bytes));
    metrics.tenant_quota_bytes.of(*tenant.name).Set(static_cast<double>(tenant.quota_bytes));
    raise_to(metrics.tenant_over_quota.of(*tenant.name), static_cast<double>(tenant.over_quota));
  }
}

}  // namespace outrider::tools
