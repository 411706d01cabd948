// Package log is what every layer logs through: log/slog, with UCX's levels and
// its form of a line, one level for the process, and a guard that costs one load.
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
// An application that has a slog handler of its own gets the records by [Use]; they
// carry the component as the attribute "component". A library never ends the
// process: Fatal is a level, not an exit.
package log
