// Package xrc is the reliable-connected transport with receive queues that peers send to by
// number, and with one connection to all interfaces of a domain if it is told so: package xrccore,
// which has the protocols, with the posts and polls of verbs.
package xrc
