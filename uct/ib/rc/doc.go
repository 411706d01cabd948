// Package rc is the reliable-connected transport over InfiniBand verbs. Package rccore implements
// the protocol; this package posts and polls through verbs.
package rc
