// Package rc is the reliable-connected transport over InfiniBand verbs: package
// rccore, which has the protocol, with the posts and polls of verbs.
package rc
