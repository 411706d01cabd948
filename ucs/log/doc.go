// Package log is the log of all layers: log/slog with UCX's levels and line format, and one level for the process. The
// check whether a level is enabled takes one load.
//
//	var logger = log.For("rc")
//
//	logger.Warn("peer sent no credits for a second", "qpn", log.Hex(qpn))
//	if log.On(log.Data) { // on paths where even the arguments cost too much
//		e.dump(wqe)
//	}
//
// A line is one write:
//
//	[1763696000.123456] [node7:4711] ep.go:120 GUCX WARN  rc: peer sent no credits for a second, qpn 0x1a2
//
// An application with its own slog handler passes it to [Use] and gets the records. Their attribute "component" is
// the component. A library never ends the process: Fatal is a level, and does not exit.
package log
