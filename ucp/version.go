package ucp

// Version is the version of this module, without the v of its tag. README.md says what a new
// version may change.
const Version = "0.1.0"
