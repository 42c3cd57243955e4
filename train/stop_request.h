// SIGTERM, SIGINT and SIGUSR1 as a wish: the command ends well as soon as it can. A second signal ends it at once.
//
// Not for: commands that take a moment, whose signals do what they always do. Thread rule: requested() from any thread.
#pragma once

namespace tempo::train {

class StopRequest {
 public:
  /// Takes the three signals. At the end of its life there is nothing left to be ended: they are ignored while the process closes.
  /// One object at a time.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// The name of the signal that asked for the end; null while none has.
  static const char* requested();
};

}  // namespace tempo::train
