//go:build !race

package base

const raceEnabled = false
