// Package ucs defines the status values and errors of all layers of gucx. Its subpackages are services: config
// reads the environment, log writes logs, stats counts events. None of them depends on a transport.
package ucs
