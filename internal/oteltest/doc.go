// Package oteltest holds the tests of the telemetry that need the OpenTelemetry
// SDK. It is a module of its own, so that the library requires the API only.
//
// Every key, payload, result, error text and token of these tests is a canary:
// each test fails when one of them shows up in anything it recorded.
package oteltest
