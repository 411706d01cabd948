package ucp

import (
	"errors"

	"github.com/gucx/gucx/ucs/stats"
)

// dialStats counts the results of Dial.
type dialStats struct {
	connected, failed stats.Counter
	rejected          [CodeTooManyEPs + 1]stats.Counter // by the code of the listener
	other             stats.Counter                     // rejected with a code that is not known
}

// rejectionNames are the names of the counters of rejections.
var rejectionNames = [CodeTooManyEPs + 1]string{
	CodeRejected: "program", CodeVersion: "version", CodeMalformed: "malformed", CodeForeignUser: "foreign_user",
	CodeUnreachable: "unreachable", CodeTooMany: "too_many_dialers", CodeTLS: "tls_demanded", CodeNoTLS: "tls_missing",
	CodeNoFiles: "no_files", CodeToken: "token_demanded", CodeNoToken: "token_missing", CodeWrongToken: "token_wrong",
	CodeTooManyEPs: "too_many_eps",
}

func (s *dialStats) addTo(n *stats.Node) {
	n.Add("connected", &s.connected)
	n.Add("failed", &s.failed)
	for code, name := range rejectionNames {
		if name != "" {
			n.Add("rejected_"+name, &s.rejected[code])
		}
	}
	n.Add("rejected_other", &s.other)
}

// count counts a call that has returned err.
func (s *dialStats) count(err error) {
	var r *RejectedError
	switch {
	case err == nil:
		s.connected.Inc()
	case !errors.As(err, &r):
		s.failed.Inc()
	case int(r.Code) < len(rejectionNames) && rejectionNames[r.Code] != "":
		s.rejected[r.Code].Inc()
	default:
		s.other.Inc()
	}
}

// dialed counts a call of Dial.
func (w *Worker) dialed(err error) {
	c := &w.connecting
	if c.dials == nil {
		c.dials = new(dialStats)
		c.dials.addTo(w.stats.root.Child("dial"))
	}
	c.dials.count(err)
}
