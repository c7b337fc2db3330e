// Package observability tests what config/observability, docs/monitoring.md and docs/runbooks say: that every expression parses and asks for
// metrics that exist, that every alert fires and stops when it should, and that what people are sent to is there.
//
// It is a module of its own, because Prometheus' parser, engine and rules need other versions of libraries than the manager may have.
// It takes nothing from the manager but docs/reference/metrics.md, which a test beside main.go compares with what the program registers.
package observability
