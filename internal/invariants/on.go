//go:build invariants

package invariants

// Enabled reports whether the build checks its invariants.
const Enabled = true
