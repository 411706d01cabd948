// Package ucs holds what every layer of gucx speaks: status values and errors.
// Services with more to them live in packages below it: config, log, seq, stats, handle.
// Nothing here knows transports.
package ucs
