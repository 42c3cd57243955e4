// SIGTERM, SIGINT and SIGUSR1 as a wish: the run ends after the step at hand, with a checkpoint. A second signal ends it at once.
//
// Not for: other commands, whose signals do what they always do. Thread rule: requested() from any thread.
#pragma once

namespace tempo::train {

class StopRequest {
 public:
  /// Takes the three signals; gives them back at the end of its life. One object at a time.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// The name of the signal that asked for the end; null while none has.
  static const char* requested();
};

}  // namespace tempo::train
