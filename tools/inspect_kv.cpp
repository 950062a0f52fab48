#include "tools/inspect_kv.hpp"

#include <ctime>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/another_process.hpp"
#include "tools/counted.hpp"
#include "tools/shown.hpp"

namespace outrider::tools {
namespace {

std::string time_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (seconds == 0 || gmtime_r(&time, &parts) == nullptr) return "-";
  std::ostringstream out;
  out << std::put_time(&parts, "%Y-%m-%d %H:%M:%S UTC");
  return out.str();
}

std::string size_text(uint64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

std::string bad_text(const kvstore::BadRecord& bad) {
  std::string tenant = "?";
  if (bad.tenant) tenant = bad.tenant->empty() ? "(public)" : shown(*bad.tenant);
  return bad.id + "  namespace " + (bad.ns.empty() ? "?" : shown(bad.ns)) + ", tenant " + tenant +
         ", depth " + (bad.depth ? std::to_string(*bad.depth) : "?") + "  " + shown(bad.reason);
}

/// Records that did not verify and are not listed.
uint64_t unshown(const kvstore::InspectReport& report) {
  return report.corrupt_records + report.missing_records + report.orphans -
         report.bad_records.size();
}

nlohmann::ordered_json bad_json(const kvstore::InspectReport& report) {
  auto out = nlohmann::ordered_json::array();
  for (const auto& bad : report.bad_records) {
    nlohmann::ordered_json one = {{"id", bad.id},
                                  {"ns", nullptr},
                                  {"tenant", nullptr},
                                  {"depth", nullptr},
                                  {"reason", bad.reason}};
    if (!bad.ns.empty()) one["ns"] = bad.ns;
    if (bad.tenant) one["tenant"] = *bad.tenant;
    if (bad.depth) one["depth"] = *bad.depth;
    out.push_back(std::move(one));
  }
  return out;
}

int inspect_kv(const std::string& directory, kvstore::InspectOptions options, bool json) {
  const auto report_ = kvstore::inspect(directory, options);
  if (!report_) return report(report_.error());
  std::cout << (json ? inspect_json(*report_) + "\n" : inspect_text(*report_));
  return report_->all_good() ? k_exit_done : k_exit_failed;
}

/// Debian builds RocksDB with its assertions on: over some contradictions in its files it ends the
/// process. Each that was to repair them counts, until the next does it without looking first.
int inspect_kv_guarded(const std::string& directory, kvstore::InspectOptions options, bool json) {
  constexpr int k_tries_of_repair = 8;
  const int tries = options.repair ? k_tries_of_repair : 1;
  for (int i = 0; i < tries; ++i) {
    const auto code = in_another_process([&] { return inspect_kv(directory, options, json); });
    if (code) return *code;
  }
  const std::string advice =
      options.repair
          ? "it cannot be repaired, move its db/ away"
          : "what can be read is kept by\n  outrider inspect kv " + directory + " --repair";
  return report(fail(ErrorCode::corrupt, directory +
                                             " is damaged, RocksDB ended the process that "
                                             "looked at it: " +
                                             advice));
}

}  // namespace

std::string inspect_text(const kvstore::InspectReport& report) {
  std::ostringstream out;
  out << report.directory << ": " << size_text(report.disk_bytes) << " on disk";
  if (report.quarantine_bytes != 0) {
    out << ", " << size_text(report.quarantine_bytes) << " of it in quarantine (inspect kv "
        << report.directory << "/quarantine)";
  }
  out << '\n';
  if (report.salvaged || report.moved_aside) {
    out << "It was damaged"
        << (report.records == 0 ? ", and nothing of it could be saved; the store is empty now.\n"
                                : ": made anew from what could be read of it.\n");
  }
  if (report.salvaged) {
    out << "Lost: "
        << (report.lost ? counted(*report.lost, "record") : "nobody knows how many records")
        << ".\n";
  }
  if (report.moved_aside) out << "What was there is in quarantine/.\n";
  if (report.marks_renewed) {
    out << "Its marks were lost: format and id are new, names of tenants come back with what they "
           "store.\n";
  }
  if (report.format.empty()) {
    out << "no format and no id: the next server that opens it gives them\n";
  } else {
    out << "format " << shown(report.format) << ", store " << shown(report.store_uuid) << ", "
        << (report.clean_shutdown ? "closed cleanly"
            : report.held         ? "not closed cleanly"
                                  : "not closed cleanly, or in use")
        << '\n';
  }
  out << report.records << " records, " << size_text(report.record_bytes) << "; of these pinned "
      << report.pinned_records << ", " << size_text(report.pinned_bytes) << ", the others in "
      << report.payload_files << " payload files" << '\n'
      << "last used from " << time_text(report.oldest_use) << " to " << time_text(report.newest_use)
      << '\n';
  out << "\nnamespaces (" << report.namespaces.size() << ")\n";
  for (const auto& use : report.namespaces) {
    out << "  " << shown(use.ns) << "  " << (use.about.empty() ? "" : shown(use.about) + "  ")
        << use.records << " records, " << use.tokens << " tokens, " << size_text(use.bytes) << '\n';
  }
  out << "\ntenants (" << report.tenants.size() << ")\n";
  for (const auto& use : report.tenants) {
    out << "  " << (use.tenant.empty() ? "(public)" : shown(use.tenant)) << "  " << use.records
        << " records, " << size_text(use.bytes) << '\n';
  }
  if (report.broken_rows != 0) out << "\n" << report.broken_rows << " broken index rows\n";
  if (report.verified) {
    out << "\nverified: " << report.good_records << " good, " << report.corrupt_records
        << " corrupt, " << report.missing_records << " missing, " << report.orphans
        << " that no row names\n";
    for (const auto& table : report.bad_tables) {
      out << "  a table, " << table << ", has a bad block\n";
    }
    for (const auto& bad : report.bad_records) out << "  " << bad_text(bad) << '\n';
    if (const uint64_t more = unshown(report); more != 0) out << "  and " << more << " more\n";
  }
  if (report.dropped != 0) {
    out << "repaired: " << report.dropped << " dropped";
    if (report.dropped_aged != 0 && !report.salvaged) {
      out << " and " << report.dropped_aged << " that had aged out";
    }
    out << "; this is what is left\n";
  }
  if (report.unpinned != 0) out << "unpinned: " << report.unpinned << '\n';
  return out.str();
}

std::string inspect_json(const kvstore::InspectReport& report) {
  nlohmann::ordered_json out = {{"directory", report.directory},
                                {"format", report.format},
                                {"store_uuid", report.store_uuid},
                                {"clean_shutdown", report.clean_shutdown},
                                {"disk_bytes", report.disk_bytes},
                                {"quarantine_bytes", report.quarantine_bytes},
                                {"payload_files", report.payload_files},
                                {"records", report.records},
                                {"record_bytes", report.record_bytes},
                                {"pinned_records", report.pinned_records},
                                {"pinned_bytes", report.pinned_bytes},
                                {"oldest_use", report.oldest_use},
                                {"newest_use", report.newest_use},
                                {"namespaces", nlohmann::ordered_json::array()},
                                {"tenants", nlohmann::ordered_json::array()},
                                {"broken_rows", report.broken_rows},
                                {"aged_rows", report.aged_rows},
                                {"salvaged", report.salvaged},
                                {"lost", nullptr},
                                {"moved_aside", report.moved_aside},
                                {"marks_renewed", report.marks_renewed},
                                {"unpinned", report.unpinned},
                                {"dropped", report.dropped},
                                {"dropped_aged", report.dropped_aged}};
  if (report.lost) out["lost"] = *report.lost;
  for (const auto& use : report.namespaces) {
    out["namespaces"].push_back({{"ns", use.ns},
                                 {"about", use.about},
                                 {"records", use.records},
                                 {"tokens", use.tokens},
                                 {"bytes", use.bytes}});
  }
  for (const auto& use : report.tenants) {
    out["tenants"].push_back(
        {{"tenant", use.tenant}, {"records", use.records}, {"bytes", use.bytes}});
  }
  if (report.verified) {
    out["verified"] = {{"good", report.good_records},       {"corrupt", report.corrupt_records},
                       {"missing", report.missing_records}, {"orphans", report.orphans},
                       {"bad", bad_json(report)},           {"bad_not_shown", unshown(report)},
                       {"bad_tables", report.bad_tables}};
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

void add_inspect_kv(CLI::App& inspect, Action& action) {
  auto* kv = inspect.add_subcommand("kv", "Records, bytes and tenants of a KV store's directory");
  auto directory = std::make_shared<std::string>();
  auto options = std::make_shared<kvstore::InspectOptions>();
  auto json = std::make_shared<bool>(false);
  kv->add_option("dir", *directory, "what --store-dir was, or its quarantine/")
      ->type_name("DIR")
      ->required();
  kv->add_flag("--verify", options->verify, "read every record and check all of it");
  kv->add_flag("--repair", options->repair,
               "keep what is right, delete the rest, db/lost/ too (no server may use DIR)");
  kv->add_flag("--unpin", options->unpin, "make pinned records ordinary ones (likewise)");
  kv->add_flag("--json", *json, "as one JSON object");
  kv->footer("Exit code 1 if something is wrong. Example: outrider inspect kv data/kv --verify");
  kv->callback([directory, options, json, &action] {
    action = [directory, options, json] { return inspect_kv_guarded(*directory, *options, *json); };
  });
}

}  // namespace outrider::tools
