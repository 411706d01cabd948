// Package paper compares results of perftest with the figures of the papers that gucx implements.
//
// A Figure is data: the commands whose results it needs, and a Case for each value of the paper, with its place in the
// paper and the Rule that decides. This package measures nothing; a Runner runs commands, and a Store stores their
// results, so that an interrupted run continues.
package paper
